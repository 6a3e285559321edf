"""gRPC next to REST: TensorFlow Serving's PredictionService and ModelService, as far as they serve a translator.

There are Predict, GetModelMetadata and GetModelStatus. The other methods answer UNIMPLEMENTED: classification and
regression take `tf.Example`s, which a translator has no use for, and the one model is configured at the start.
"""

import logging
import math
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_transformer.server.servable import DEFAULT_SIGNATURE, ServingError
from keras_transformer.server.versions import ServedVersions

_LOGGER = logging.getLogger(__name__)
# Where a message holds the values of a type that is not packed.
_FIELDS = {
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
}
# What names from a request may be long as; the status of an answer travels in a header of a few kilobytes.
_MAX_MESSAGE = 1024


class GrpcServer:
    """Answer TensorFlow Serving's gRPC clients with a model that is served already.

    Args:
        versions: `ServedVersions`, started. It is not stopped with the server.
        host: name or address to listen at.
        port: to listen at; 0 chooses a free one.

    Attributes:
        port: that it listens at, after `start`.
    """

    def __init__(self, versions: ServedVersions, *, host: str = "127.0.0.1", port: int = 8500):
        self.versions = versions
        self.host = host
        self.port = port
        self._server = None

    async def start(self):
        """Listen, in the event loop of the model.

        Raises:
            OSError: if the port is not free.
        """
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self.versions.options.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # else a second server would take half of the first one's requests
            ]
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(self.versions), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(self.versions), server)
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        try:
            self.port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"Cannot listen at {address} for gRPC: {error}") from error
        await server.start()
        self._server = server

    async def stop(self):
        """Refuse requests from now on; those that have arrived get `stop_seconds` of the model's options."""
        if self._server is not None:
            await self._server.stop(self.versions.options.stop_seconds)
            self._server = None


# === Services ===


def _answering(method):
    """Return a handler whose `ServingError`s become status codes; any other error is INTERNAL, for the log only."""

    async def handler(self, request, context):
        try:
            return await method(self, request, context)
        except ServingError as error:
            code, message = grpc.StatusCode[error.code], error.message[:_MAX_MESSAGE]
        except Exception:
            _LOGGER.exception("%s failed", method.__name__)
            code, message = grpc.StatusCode.INTERNAL, "The server failed; its log says how."
        await context.abort(code, message)

    return handler


async def _unimplemented(self, request, context):
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This server has Predict, GetModelMetadata and GetModelStatus.")


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, versions):
        self._versions = versions

    @_answering
    async def Predict(self, request, context):  # noqa: N802
        start = time.monotonic()
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        try:
            version = _version(self._versions, request.model_spec)
            signature = self._versions.servable(version).signature(name)
            wanted = _wanted_outputs(request.output_filter, signature)
            inputs = {argument: array_of(tensor, argument) for argument, tensor in request.inputs.items()}
        except ServingError as error:
            if self._versions.on_request is not None:  # what `predict` tells by itself
                self._versions.on_request("", error.code, time.monotonic() - start)
            raise
        version, outputs = await self._versions.predict(name, inputs, version, context.time_remaining())
        response = predict_pb2.PredictResponse()
        for output in wanted:
            response.outputs[output].CopyFrom(tensor_of(outputs[output]))
        _set_model_spec(response.model_spec, self._versions.name, version, name)
        return response

    @_answering
    async def GetModelMetadata(self, request, context):  # noqa: N802
        servable = self._versions.servable(_version(self._versions, request.model_spec))
        if list(request.metadata_field) != ["signature_def"]:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"`metadata_field` must be signature_def. Received: {', '.join(request.metadata_field) or 'nothing'}",
            )
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in servable.signature_defs.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(signatures)
        _set_model_spec(response.model_spec, self._versions.name, servable.version)
        return response

    Classify = Regress = MultiInference = _unimplemented


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, versions):
        self._versions = versions

    @_answering
    async def GetModelStatus(self, request, context):  # noqa: N802
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in self._versions.status(_version(self._versions, request.model_spec)):
            added = response.model_version_status.add(
                version=status.version, state=get_model_status_pb2.ModelVersionStatus.State.Value(status.state)
            )
            added.status.error_code = grpc.StatusCode[status.code].value[0]
            added.status.error_message = status.message
        return response

    HandleReloadConfigRequest = _unimplemented


def _version(versions, spec):
    """Return the version that a request asks for, `None` for the newest."""
    if not spec.name:
        raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec: `model_spec.name` must name the model")
    if spec.name != versions.name:
        raise ServingError("NOT_FOUND", f"Servable not found for request: Latest({spec.name[: _MAX_MESSAGE // 2]})")
    if spec.WhichOneof("version_choice") == "version_label":
        raise ServingError("INVALID_ARGUMENT", f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value if spec.HasField("version") else None


def _set_model_spec(spec, name, version, signature_name=""):
    spec.name, spec.signature_name, spec.version.value = name, signature_name, version


def _wanted_outputs(names, signature):
    """Return the outputs that `output_filter` names, all by default."""
    unknown = [name for name in names if name not in signature.outputs]
    if unknown or len(set(names)) < len(names):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"`output_filter` must name outputs of the signature, once each: {', '.join(signature.outputs)}. "
            f"Received: {', '.join(names)}",
        )
    return names or list(signature.outputs)


# === Tensors ===


def array_of(tensor, name):
    """Return the array in a `TensorProto`; strings become bytes.

    There must be as many values as the shape has places. TensorFlow Serving takes fewer, and repeats the last one, and
    more, and drops them: nobody means that, and a short message could ask for any amount of memory.

    Args:
        tensor: `TensorProto`.
        name: of the input, for messages.

    Raises:
        ServingError: INVALID_ARGUMENT if the message contradicts itself, or has a type that no signature has.
    """
    if tensor.dtype not in _FIELDS:
        known = tensor.dtype in types_pb2.DataType.values()
        received = types_pb2.DataType.Name(tensor.dtype) if known else tensor.dtype
        raise ServingError("INVALID_ARGUMENT", f"Input `{name}` must be of a type that is served. Received: {received}")
    dtype = np.dtype(tf.dtypes.as_dtype(tensor.dtype).as_numpy_dtype)
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    values = getattr(tensor, _FIELDS[tensor.dtype])
    packed = tensor.tensor_content if tensor.dtype != types_pb2.DT_STRING else b""
    num_values = len(packed) / dtype.itemsize if packed else len(values)
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0 or num_values != math.prod(shape):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Input `{name}` must have as many values as its shape has places. "
            f"Received: {num_values:g} values, shape {shape[:8]}",
        )
    try:
        if packed:
            array = np.frombuffer(packed, dtype)
        elif tensor.dtype == types_pb2.DT_HALF:
            array = np.array(list(values), np.uint16).view(dtype)
        else:
            array = np.array(list(values), dtype)
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise ServingError("INVALID_ARGUMENT", f"Input `{name}` cannot be read: {error}") from error


def tensor_of(array):
    """Return a `TensorProto` of an array; values in the field of their type, where clients look."""
    dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
    if dtype not in _FIELDS:
        return tf.make_tensor_proto(array)
    tensor = tensor_pb2.TensorProto(dtype=dtype)
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    values = array.view(np.uint16) if dtype == types_pb2.DT_HALF else array
    getattr(tensor, _FIELDS[dtype]).extend(values.ravel().tolist())
    return tensor
