"""A small SavedModel whose answers are known, and a server of it in a thread."""

import asyncio
import http.client
import json
import re
import threading
import time

import pytest
import tensorflow as tf

from keras_transformer.server.options import ServingOptions


def write_toy(path, *, greeting="hello", warm_up=()):
    """Write a SavedModel with one signature for each kind of input and output.

    Args:
        path: version folder.
        greeting: what the signature `greeting` says, so that versions can be told apart.
        warm_up: pairs of a signature's name and inputs by name, to be replayed when it is loaded.
    """

    module = tf.Module()
    module.one = tf.Variable(1.0)

    def string(name="text"):
        return tf.TensorSpec([None], tf.string, name)

    def integers(*shape, name):
        return tf.TensorSpec([None, *shape], tf.int32, name)

    @tf.function(input_signature=[string()])
    def serving_default(text):
        length = tf.strings.length(text)
        return {
            "upper": tf.strings.upper(text, encoding=""),
            "length": length,
            "third": tf.cast(length, tf.float32) / 3,
            "is_long": length > 10,
            "raw_bytes": text,
        }

    @tf.function(input_signature=[string()])
    def greet(text):
        return {"greeting": tf.strings.join([tf.constant(greeting + " "), text])}

    @tf.function(input_signature=[string()])
    def letters(text):
        codes = tf.strings.unicode_decode(text, "UTF-8")
        characters = tf.strings.unicode_split(text, "UTF-8")
        return {"codes": codes.to_tensor(0), "characters": characters.to_tensor("")}

    @tf.function(input_signature=[string()])
    def picky(text):
        # It fails for a whole batch, as an operation does.
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(text != "bad"), ["a row must not be bad"])]):
            return {"same": tf.identity(text)}

    @tf.function(input_signature=[integers(name="steps")])
    def slow(steps):
        most = tf.reduce_max(tf.concat([steps, [0]], 0))
        done = tf.while_loop(lambda step: step < most, lambda step: [step + 1], [tf.constant(0)])[0]
        return {"steps": steps + 0 * done}

    @tf.function(input_signature=[string("name"), tf.TensorSpec([None], tf.float32, "weight")])
    def pair(name, weight):
        return {"both": tf.strings.join([name, tf.strings.as_string(weight, precision=2)], "=")}

    @tf.function(input_signature=[integers(None, name="ids")])
    def total(ids):
        return {"total": tf.reduce_sum(ids, 1), "width": tf.fill([tf.shape(ids)[0]], tf.shape(ids)[1])}

    @tf.function(input_signature=[integers(name="ids")])
    def mean_of_all(ids):
        return {"mean": tf.reduce_mean(tf.cast(ids, tf.float32))}  # no row for each row

    @tf.function(input_signature=[integers(name="ids")])
    def inverse(ids):
        return {"inverse": module.one / tf.cast(ids, tf.float32)}  # infinite for 0

    tf.saved_model.save(
        module,
        str(path),
        signatures={
            "serving_default": serving_default,
            "greeting": greet,
            "letters": letters,
            "picky": picky,
            "slow": slow,
            "pair": pair,
            "total": total,
            "mean_of_all": mean_of_all,
            "inverse": inverse,
        },
    )
    if warm_up:
        _write_warm_up(path, warm_up)


def _write_warm_up(path, requests):
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    (path / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(path / "assets.extra/tf_serving_warmup_requests")) as writer:
        for signature, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = signature
            for name, values in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())


@pytest.fixture(scope="session")
def write_toy_model():
    return write_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """A base folder of one version, 7, that no test writes to."""
    base = tmp_path_factory.mktemp("models") / "toy"
    write_toy(base / "7")
    return base


class RunningServer:
    """A `ServedVersions` and its `HttpServer` in the event loop of a thread, on a free port of loopback."""

    def __init__(self, directory, name="toy", **options):
        from keras_transformer.server.http_server import HttpServer
        from keras_transformer.server.versions import ServedVersions

        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

        async def start():
            # The batcher belongs to the loop it is made in.
            self.versions = ServedVersions(name, directory, ServingOptions(port=0, **options))
            self.http = HttpServer(self.versions)
            await self.http.start()
            await self.versions.start()

        self.call(start(), timeout=300)  # a real export warms up for a while
        self.port = self.http.port

    def call(self, work, timeout=300):
        """The result of a coroutine of the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def stop(self):
        async def stop():
            await self.http.stop_listening()
            await self.versions.stop()
            await self.http.stop()

        self.call(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def request(self, method, path, body=None, headers=(), connection=None):
        """Status, headers and body of one answer."""
        connection, own = connection or self.connect(), connection is None
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            if own:
                connection.close()

    def get(self, path):
        """Status and JSON of one answer."""
        status, _, body = self.request("GET", path)
        return status, strict_json(body)

    def predict(self, document, path="/v1/models/toy:predict", connection=None):
        """Status and JSON of the answer to a request to predict, of an object or of bytes."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        status, _, answer = self.request("POST", path, body, connection=connection)
        return status, strict_json(answer)

    def metric(self, name, **labels):
        """Sum of the values of a metric of the package that have these labels."""
        total = 0
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            match = re.fullmatch(r"keras_transformer_(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name:
                its_labels = dict(re.findall(r'(\w+)="(.*?)"', match[2] or ""))
                total += float(match[3]) if labels.items() <= its_labels.items() else 0
        return total

    @staticmethod
    def wait_until(condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)


def strict_json(body):
    """JSON as the standard has it, in UTF-8."""

    def refuse(text):
        raise ValueError(f"{text} is not JSON")

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


@pytest.fixture(scope="session")
def make_server():
    """Function of a directory and options to a `RunningServer`; all are stopped at the end, if they still run."""
    servers = []

    def make(directory, **options):
        servers.append(RunningServer(directory, **options))
        return servers[-1]

    yield make
    for server in servers:
        if not server.loop.is_closed():
            server.stop()


@pytest.fixture(scope="module")
def server(make_server, toy):
    """A server of the toy that the tests of a module share."""
    server = make_server(toy, timeout_seconds=30.0)
    yield server
    server.stop()
