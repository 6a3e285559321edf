"""One version of a SavedModel, loaded and run in the way that TensorFlow Serving does it: TF1 loader and session."""

import contextlib
import dataclasses
import logging
import threading
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

from keras_transformer.files import version_of
from keras_transformer.saved_model.warm_up import WARM_UP_FILE, read_warm_up

DEFAULT_SIGNATURE = "serving_default"
# Canonical status codes, at the index that is their number.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_MAX_MESSAGE = 1024


class ServingError(Exception):
    """A request that is not answered with a result.

    Args:
        code: name of a canonical status code, such as "INVALID_ARGUMENT".
        message: what the client is told.
    """

    def __init__(self, code: str, message: str):
        if code not in _CODES[1:]:
            raise ValueError(f"`code` must be the name of a status code. Received: {code}")
        super().__init__(message)
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature: name in the graph, numpy dtype, shape (`None` where free or unknown)."""

    graph_name: str
    dtype: np.dtype
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class SignatureSpec:
    """Inputs and outputs of a signature, by name, in the order of their names."""

    name: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]

    def check(self, inputs: dict[str, np.ndarray]) -> None:
        """Raise `ServingError` unless arrays fit the inputs: names, types, ranks, fixed sizes, one number of rows."""
        if inputs.keys() != self.inputs.keys():
            extra, missing = sorted(inputs.keys() - self.inputs.keys()), sorted(self.inputs.keys() - inputs.keys())
            raise ServingError(
                "INVALID_ARGUMENT",
                f"input size does not match signature: {len(inputs)}!={len(self.inputs)}. "
                f"Sent extra: {{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}.",
            )
        num_rows = {}
        for name, spec in self.inputs.items():
            array = inputs[name]
            if array.dtype != spec.dtype:
                raise ServingError(
                    "INVALID_ARGUMENT", f"Input `{name}` must be {dtype_name(spec)}. Received: {array.dtype}"
                )
            if spec.shape is None:
                continue
            fits = array.ndim == len(spec.shape) and all(
                known in (None, size) for known, size in zip(spec.shape, array.shape, strict=True)
            )
            if not fits:
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"Input `{name}` must have the shape {_shape_text(spec.shape)}. "
                    f"Received: {_shape_text(array.shape)}",
                )
            if array.ndim:
                num_rows[name] = len(array)
        if len(set(num_rows.values())) > 1:
            raise ServingError("INVALID_ARGUMENT", f"Inputs must have the same number of rows. Received: {num_rows}")


class Servable:
    """One loaded version of a model.

    Args:
        path: folder with `saved_model.pb`.
        intra_op_threads: threads that share one operation; 0 lets TensorFlow choose. The first session of a process
            decides it for all.
        inter_op_threads: threads that run operations side by side; 0 lets TensorFlow choose.

    Attributes:
        version: see `files.version_of`.
        signatures: by name, `SignatureSpec`.
        signature_defs: by name, `SignatureDef` message; also of what the loader itself runs to initialise the model.

    Raises:
        ServingError: if the folder cannot be loaded.
    """

    def __init__(self, path: str | Path, *, intra_op_threads: int = 0, inter_op_threads: int = 0):
        self.path = Path(path)
        self.version = version_of(self.path)
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=intra_op_threads,
            inter_op_parallelism_threads=inter_op_threads,
            # Else the first session's pool, of the first session's size, would be everybody's.
            use_per_session_threads=inter_op_threads > 0,
        )
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default(), _no_advice():
                meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(self.path))
        except Exception as error:
            self._session.close()
            raise _serving_error(error, f"Cannot load {self.path}: ") from error
        self.signature_defs = {name: meta_graph.signature_def[name] for name in sorted(meta_graph.signature_def)}
        self.signatures = {
            name: SignatureSpec(name, _specs(proto.inputs), _specs(proto.outputs))
            for name, proto in self.signature_defs.items()
            # An operation without a value, which the loader runs to initialise the model, is no output.
            if all(info.dtype for info in proto.outputs.values())
        }

    def signature(self, name: str) -> SignatureSpec:
        """Return the signature of that name, `serving_default` if empty; raise `ServingError` if there is none."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        return self.signatures[name]

    def run(
        self, signature_name: str, inputs: dict[str, np.ndarray], timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """Run a signature; any thread may call it.

        Args:
            signature_name: name of a signature.
            inputs: by name, arrays that `SignatureSpec.check` accepts; strings as arrays of objects, which are bytes.
            timeout: seconds after which the run is stopped. Defaults to no limit.

        Returns:
            By name, arrays; strings as arrays of objects, which are bytes.

        Raises:
            ServingError: with the status code of the operation that failed, or DEADLINE_EXCEEDED.
        """
        signature = self.signature(signature_name)
        fetches = {name: spec.graph_name for name, spec in signature.outputs.items()}
        feeds = {spec.graph_name: inputs[name] for name, spec in signature.inputs.items()}
        options = None if timeout is None else tf.compat.v1.RunOptions(timeout_in_ms=max(1, round(timeout * 1000)))
        try:
            results = self._session.run(fetches, feeds, options=options)
        except Exception as error:
            raise _serving_error(error) from error
        # The session gives bare values for tensors of rank 0.
        return {name: np.asarray(results[name], spec.dtype) for name, spec in signature.outputs.items()}

    def warm_up(self) -> int:
        """Replay the requests that the export brings for it; return how many they were.

        Raises:
            ServingError: if one of them fails, or is no request to predict.
        """
        num_requests = 0
        try:
            for name, inputs in read_warm_up(self.path):
                signature = self.signature(name)
                signature.check(inputs)
                self.run(signature.name, inputs)
                num_requests += 1
        except Exception as error:
            prefix = f"Warm-up request {num_requests + 1} of {self.path / WARM_UP_FILE}: "
            raise _serving_error(error, prefix) from error
        return num_requests

    def close(self):
        """Free the model. Runs that are going on fail."""
        self._session.close()


def dtype_name(spec):
    """Return TensorFlow's name of a tensor's type, such as `string`."""
    return "string" if spec.dtype == np.dtype(object) else spec.dtype.name


def _specs(tensors):
    return {name: _spec(tensors[name]) for name in sorted(tensors)}


def _spec(info):
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
    return TensorSpec(info.name, np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype), sizes)


def _shape_text(shape):
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def _serving_error(error, prefix=""):
    """Return what an exception of TensorFlow means to a client."""
    if isinstance(error, ServingError):
        return ServingError(error.code, prefix + error.message)
    # A session raises the error anew, behind a trace of the graph that is of no use to a client.
    if isinstance(error, tf.errors.OpError) and isinstance(error.__context__, tf.errors.OpError):
        error = error.__context__
    if isinstance(error, tf.errors.OpError):
        code = _CODES[error.error_code] if 0 < error.error_code < len(_CODES) else "UNKNOWN"
        message = error.message
    else:
        # The session's own checks of what it is fed, before it runs anything.
        code = "INVALID_ARGUMENT" if isinstance(error, (ValueError, TypeError)) else "INTERNAL"
        message = str(error) or type(error).__name__
    return ServingError(code, prefix + message[:_MAX_MESSAGE])


_ADVICE_LOCK = threading.Lock()


@contextlib.contextmanager
def _no_advice():
    """Keep TensorFlow from advising against its first loader, the one that TensorFlow Serving uses."""

    def wanted(record):
        return record.levelno != logging.WARNING

    logger = tf.get_logger()
    with _ADVICE_LOCK:
        logger.addFilter(wanted)
        try:
            yield
        finally:
            logger.removeFilter(wanted)
