"""gRPC of the local server, by clients made of TensorFlow Serving's own messages, over real channels."""

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from keras_transformer.server.grpc_server import GrpcServer, array_of, tensor_of
from keras_transformer.server.servable import ServingError

Code = grpc.StatusCode
# Steps of the signature `slow` that no test waits for.
FOREVER = 10**9


class Client:
    """Both services on a channel to a running server."""

    def __init__(self, server):
        self.server = server
        self.grpc = GrpcServer(server.versions, port=0)
        server.call(self.grpc.start())
        self.channel = self.open()
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def open(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.grpc.port}", [("grpc.enable_http_proxy", 0)])

    def predict(self, signature="", *, model="toy", version=None, outputs=(), timeout=300, **inputs):
        """The answer to a request whose inputs are messages or what `tf.make_tensor_proto` takes."""
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name, request.model_spec.signature_name = model, signature
        if version is not None:
            request.model_spec.version.value = version
        for argument, value in inputs.items():
            is_message = isinstance(value, tensor_pb2.TensorProto)
            request.inputs[argument].CopyFrom(value if is_message else tf.make_tensor_proto(value))
        return self.predictions.Predict(request, timeout=timeout)

    def close(self):
        self.channel.close()
        self.server.call(self.grpc.stop())


@pytest.fixture(scope="module")
def client(make_server, toy):
    client = Client(make_server(toy, max_body_bytes=2**20, max_request_rows=50, max_string_bytes=10_000))
    yield client
    client.close()


def arrays(response):
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def refused(code, message, call, *arguments, **keywords):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **keywords)
    assert caught.value.code() == code, caught.value.details()
    assert message in caught.value.details()


def wait_until(condition):
    for _ in range(30000):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


def tensor(dtype, shape, **values):
    message = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


# === Predict ===


def test_predict(client):
    response = client.predict(text=["one", "", "something long"])
    assert response.model_spec.name == "toy"
    assert response.model_spec.version.value == 7
    assert response.model_spec.signature_name == "serving_default"
    outputs = arrays(response)
    assert outputs.keys() == {"upper", "length", "third", "is_long", "raw_bytes"}
    assert outputs["upper"].tolist() == [b"ONE", b"", b"SOMETHING LONG"]
    assert outputs["length"].tolist() == [3, 0, 14]
    np.testing.assert_allclose(outputs["third"], [1, 0, 14 / 3], rtol=1e-6)
    assert outputs["third"].dtype == np.float32
    assert outputs["is_long"].tolist() == [False, False, True]


def test_values_are_where_clients_of_tensorflow_serving_look(client):
    outputs = client.predict(text=["one", "something long"]).outputs
    assert list(outputs["length"].int_val) == [3, 14]
    np.testing.assert_allclose(outputs["third"].float_val, [1, 14 / 3], rtol=1e-6)
    assert list(outputs["is_long"].bool_val) == [False, True]
    assert list(outputs["raw_bytes"].string_val) == [b"one", b"something long"]
    assert [dim.size for dim in outputs["length"].tensor_shape.dim] == [2]


def test_bytes_come_and_go_as_they_are(client):
    texts = [bytes(range(256)), b"\xff", b"\x00", b"\xed\xa0\x80"]
    assert arrays(client.predict(text=texts))["raw_bytes"].tolist() == texts


@pytest.mark.parametrize("num_rows", [0, 1, 2, 33])
def test_any_number_of_rows(client, num_rows):
    texts = [f"{number}" for number in range(num_rows)]
    outputs = arrays(client.predict("greeting", text=np.array(texts, object)))
    assert outputs["greeting"].tolist() == [f"hello {text}".encode() for text in texts]


def test_matrices_and_several_inputs(client):
    outputs = arrays(client.predict("total", ids=np.int32([[1, 2, 3], [4, 5, 6]])))
    assert outputs["total"].tolist() == [6, 15]
    outputs = arrays(client.predict("letters", text=["ab", "ä"]))
    assert outputs["characters"].tolist() == [[b"a", b"b"], ["ä".encode(), b""]]
    outputs = arrays(client.predict("pair", name=["x"], weight=np.float32([0.25])))
    assert outputs["both"].tolist() == [b"x=0.25"]


def test_output_filter(client):
    assert arrays(client.predict(outputs=["length"], text=["one"])) == {"length": np.int32([3])}
    for outputs in (["none"], ["length", "length"], ["length", "none"]):
        refused(Code.INVALID_ARGUMENT, "`output_filter`", client.predict, outputs=outputs, text=["one"])


def test_version(client):
    assert client.predict(version=7, text=["one"]).model_spec.version.value == 7
    for version in (0, 1, 8, -7, 2**63 - 1):
        message = f"Servable not found for request: Specific(toy, {version})"
        refused(Code.NOT_FOUND, message, client.predict, version=version, text=["one"])


def test_version_labels_are_not_known(client):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.version_label = "toy", "stable"
    refused(Code.INVALID_ARGUMENT, "label: stable", client.predictions.Predict, request)


def test_names_that_are_not_known(client):
    refused(Code.NOT_FOUND, "Latest(other)", client.predict, model="other", text=["one"])
    refused(Code.INVALID_ARGUMENT, "Missing ModelSpec", client.predict, model="", text=["one"])
    refused(Code.FAILED_PRECONDITION, '"nöne" not found', client.predict, "nöne", text=["one"])


LONG = "ü" * 50_000


@pytest.mark.parametrize(
    ("code", "request_"),
    [
        (Code.NOT_FOUND, {"model": LONG}),
        (Code.FAILED_PRECONDITION, {"signature": LONG}),
        (Code.INVALID_ARGUMENT, {LONG: ["one"]}),
        (Code.INVALID_ARGUMENT, {"outputs": [LONG]}),
    ],
    ids=["model", "signature", "input", "output"],
)
def test_a_long_name_does_not_break_the_answer(client, code, request_):
    """The message of an error travels in a header, which has a limit of its own."""
    refused(code, "ü" * 100, client.predict, **{"text": ["one"], **request_})


def test_inputs_that_do_not_fit(client):
    refused(Code.INVALID_ARGUMENT, "Missing but required: {text}", client.predict)
    refused(Code.INVALID_ARGUMENT, "Sent extra: {more}", client.predict, text=["a"], more=["b"])
    refused(Code.INVALID_ARGUMENT, "Sent extra: {test}", client.predict, test=["a"])
    refused(Code.INVALID_ARGUMENT, "`text` must be string", client.predict, text=np.int32([1]))
    refused(Code.INVALID_ARGUMENT, "`ids` must be int32", client.predict, "total", ids=np.int64([[1]]))
    refused(Code.INVALID_ARGUMENT, "`text` must have the shape [?]", client.predict, text="one")
    refused(Code.INVALID_ARGUMENT, "`text` must have the shape [?]", client.predict, text=[["one"]])
    refused(Code.INVALID_ARGUMENT, "same number of rows", client.predict, "pair", name=["a"], weight=np.float32([1, 2]))


def test_an_operation_that_fails(client):
    refused(Code.INVALID_ARGUMENT, "a row must not be bad", client.predict, "picky", text=["good", "bad"])
    assert arrays(client.predict("picky", text=["good"])) == {"same": [b"good"]}


STRING, INT32, FLOAT = types_pb2.DT_STRING, types_pb2.DT_INT32, types_pb2.DT_FLOAT


@pytest.mark.parametrize(
    "message",
    [
        tensor(STRING, [2], string_val=[b"a"]),
        tensor(STRING, [1], string_val=[b"a", b"b"]),
        tensor(STRING, [1]),
        tensor(STRING, [], string_val=[]),
        tensor(STRING, [2**40], string_val=[b"a"]),
        tensor(STRING, [2**62, 2**62], string_val=[b"a"]),
        tensor(STRING, [2**62, 2**62, 0]),
        tensor(STRING, [0] * 300),
        tensor(STRING, [-1], string_val=[b"a"]),
        tensor(STRING, [-1, -1], string_val=[b"a"]),
        tensor(STRING, [1], tensor_content=b"\x01a"),
        tensor(STRING, [1], int_val=[1]),
        tensor(INT32, [2, 1], int_val=[1]),
        tensor(INT32, [1], tensor_content=b"\x01\x00\x00"),
        tensor(INT32, [2], tensor_content=b"\x01\x00\x00\x00"),
        tensor(types_pb2.DT_INT8, [1], int_val=[1000]),
        tensor(types_pb2.DT_INVALID, [0]),
        tensor(types_pb2.DT_RESOURCE, [0]),
        tensor(types_pb2.DT_VARIANT, [0]),
        tensor(types_pb2.DT_STRING_REF, [1], string_val=[b"a"]),
        tensor(999, [0]),
    ],
    ids=lambda message: str(message).replace("\n", " ")[:60],
)
def test_messages_that_contradict_themselves(client, message):
    refused(Code.INVALID_ARGUMENT, "Input `text`", client.predict, text=message)


def test_unknown_rank(client):
    message = tensor(STRING, [], string_val=[b"a"])
    message.tensor_shape.unknown_rank = True
    refused(Code.INVALID_ARGUMENT, "Input `text`", client.predict, text=message)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[b"a", b"\xff"], [b"", b"c"]], object),
        np.array([True, False]),
        *(np.array([[1, 0, 100]], dtype) for dtype in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()),
        *(np.array([1.5, -0.0, np.inf], dtype) for dtype in "float16 float32 float64".split()),
        np.zeros([0, 3], np.int32),
        np.float32(2.5).reshape([]),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_tensors_as_tensorflow_writes_and_reads_them(array):
    """In both forms that TensorFlow writes (values packed or not), and back in the form that it reads."""
    for message in (tf.make_tensor_proto(array), tensor_of(array)):
        read = array_of(message, "x")
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(tf.make_ndarray(tensor_of(array)), array)
    assert not tensor_of(array).tensor_content


def test_a_short_message_does_not_become_a_large_array():
    with pytest.raises(ServingError, match="as many values as its shape has places"):
        array_of(tensor(FLOAT, [2**50], float_val=[1.0]), "x")


# === Limits ===


def test_limits(client):
    refused(Code.INVALID_ARGUMENT, "at most 50 rows", client.predict, text=["a"] * 51)
    refused(Code.INVALID_ARGUMENT, "at most 10000 bytes", client.predict, text=["a" * 10_001])
    refused(Code.RESOURCE_EXHAUSTED, "1048576", client.predict, text=["a" * 2**20])
    assert arrays(client.predict(outputs=["length"], text=["a" * 10_000] * 50))["length"].tolist() == [10_000] * 50


def test_deadline(client):
    refused(Code.DEADLINE_EXCEEDED, "", client.predict, "slow", steps=np.int32([FOREVER]), timeout=0.5)
    # The run was stopped, so that the next one has the model for itself.
    assert arrays(client.predict("slow", steps=np.int32([3])))["steps"].tolist() == [3]


def test_a_client_that_leaves(client):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "toy", "slow"
    request.inputs["steps"].CopyFrom(tf.make_tensor_proto(np.int32([200_000])))
    future = client.predictions.Predict.future(request)
    wait_until(lambda: client.server.versions.num_in_flight)
    future.cancel()
    wait_until(lambda: not client.server.versions.num_in_flight)
    assert arrays(client.predict("slow", steps=np.int32([3])))["steps"].tolist() == [3]


def test_distinct_rows_of_many_clients(client):
    """Requests that meet are run together; everybody gets the own rows, in order."""

    def work(number):
        with client.open() as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for step in range(20):
                texts = [f"{number} {step} {row}" for row in range(1 + (number + step) % 5)]
                request = predict_pb2.PredictRequest()
                request.model_spec.name, request.model_spec.signature_name = "toy", "greeting"
                request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
                outputs = stub.Predict(request, timeout=300).outputs
                assert list(outputs["greeting"].string_val) == [f"hello {text}".encode() for text in texts]
        return number

    with ThreadPoolExecutor(16) as executor:
        assert list(executor.map(work, range(16))) == list(range(16))


def test_requests_are_counted(make_server, toy):
    client = Client(make_server(toy))
    try:
        client.predict(text=["one"])
        refused(Code.FAILED_PRECONDITION, "none", client.predict, "none", text=["one"])
        refused(Code.INVALID_ARGUMENT, "", client.predict, text=tensor(STRING, [2]))
        text = client.server.http.metrics.text().decode()
    finally:
        client.close()
    counts = [line for line in text.splitlines() if line.startswith("keras_transformer_requests_total")]
    assert sorted(counts) == [
        'keras_transformer_requests_total{code="FAILED_PRECONDITION",signature=""} 1.0',
        'keras_transformer_requests_total{code="INVALID_ARGUMENT",signature=""} 1.0',
        'keras_transformer_requests_total{code="OK",signature="serving_default"} 1.0',
    ]


# === Metadata, status, the rest ===


def test_metadata(client, toy):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "toy"
    response = client.predictions.GetModelMetadata(request)
    assert (response.model_spec.name, response.model_spec.version.value) == ("toy", 7)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert list(response.metadata) == ["signature_def"]
    assert response.metadata["signature_def"].Unpack(signatures)
    saved = tf.saved_model.load(str(toy / "7")).signatures
    # The loader's own, to initialise the model, may be among them; TensorFlow Serving shows it.
    assert set(signatures.signature_def) - {"__saved_model_init_op"} == set(saved)
    definition = signatures.signature_def["pair"]
    assert definition.method_name == "tensorflow/serving/predict"
    assert {name: info.dtype for name, info in definition.inputs.items()} == {"name": STRING, "weight": FLOAT}
    assert [dim.size for dim in definition.outputs["both"].tensor_shape.dim] == [-1]


def test_metadata_that_cannot_be_had(client):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "toy"
    refused(Code.INVALID_ARGUMENT, "Received: nothing", client.predictions.GetModelMetadata, request)
    request.metadata_field.append("other")
    refused(Code.INVALID_ARGUMENT, "Received: other", client.predictions.GetModelMetadata, request)
    request.model_spec.name = "other"
    refused(Code.NOT_FOUND, "Latest(other)", client.predictions.GetModelMetadata, request)


def test_status(client):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "toy"
    for version in (None, 7):
        if version is not None:
            request.model_spec.version.value = version
        (status,) = client.models.GetModelStatus(request).model_version_status
        assert status.version == 7
        assert status.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
        assert (status.status.error_code, status.status.error_message) == (0, "")
    request.model_spec.version.value = 8
    refused(Code.NOT_FOUND, "version 8", client.models.GetModelStatus, request)


def test_status_of_a_version_that_cannot_be_loaded(make_server, write_toy_model, tmp_path):
    write_toy_model(tmp_path / "toy" / "1")
    (tmp_path / "toy" / "2").mkdir()
    (tmp_path / "toy" / "2" / "saved_model.pb").write_bytes(b"no model")
    client = Client(make_server(tmp_path / "toy"))
    try:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "toy"
        new, old = client.models.GetModelStatus(request).model_version_status
        assert (new.version, old.version) == (2, 1)
        assert new.state == get_model_status_pb2.ModelVersionStatus.END
        assert new.status.error_code not in (0, Code.UNIMPLEMENTED.value[0])
        assert new.status.error_message
        assert old.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
        assert client.predict(text=["one"]).model_spec.version.value == 1
    finally:
        client.close()


def test_what_there_is_not(client):
    message = "Predict, GetModelMetadata and GetModelStatus"
    for call, request in (
        (client.predictions.Classify, classification_pb2.ClassificationRequest()),
        (client.predictions.Regress, regression_pb2.RegressionRequest()),
        (client.predictions.MultiInference, inference_pb2.MultiInferenceRequest()),
        (client.models.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()),
    ):
        refused(Code.UNIMPLEMENTED, message, call, request)


def test_a_fault_of_the_server_is_in_the_log_only(client, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(client.server.versions, "predict", fail)
    with pytest.raises(grpc.RpcError) as caught:
        client.predict(text=["one"])
    assert caught.value.code() == Code.INTERNAL
    assert "secret" not in caught.value.details()
    assert "a secret" in caplog.text


# === Starting and stopping ===


def test_a_port_that_is_taken(client):
    other = GrpcServer(client.server.versions, port=client.grpc.port)
    with pytest.raises(OSError, match=f"127.0.0.1:{client.grpc.port}"):
        client.server.call(other.start())


def test_stop_answers_what_has_arrived(make_server, toy):
    client = Client(make_server(toy))
    versions = client.server.versions
    steps = 200_000
    while True:  # so many steps that they take longer than what follows, on any machine
        start = time.monotonic()
        client.predict("slow", steps=np.int32([steps]))
        if time.monotonic() - start > 1:
            break
        steps *= 2
    with ThreadPoolExecutor(1) as executor:
        answer = executor.submit(client.predict, "slow", steps=np.int32([steps]))
        wait_until(lambda: versions.num_in_flight)
        client.server.call(client.grpc.stop())
        assert arrays(answer.result(300))["steps"].tolist() == [steps]
    refused(Code.UNAVAILABLE, "", client.predict, text=["one"])
    client.close()
