"""Options of the local server, checked before anything heavy is imported."""

import dataclasses
import math

_MAY_BE_ZERO = ("port", "grpc_port", "poll_seconds", "stop_seconds", "intra_op_threads", "inter_op_threads")
_MAX_PORT = 65535


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Addresses, limits and sizes of the local server; the one home of their defaults.

    Args:
        host: address to listen on; 0.0.0.0 for all of the machine.
        port: of HTTP; 0 takes a free one.
        grpc_port: of gRPC; 0 takes a free one. Left out, there is no gRPC.
        access_log: write a line of JSON to standard output for each HTTP request.
        max_body_bytes: largest body of an HTTP request, or message of gRPC. Larger ones are answered with 413, or
            RESOURCE_EXHAUSTED.
        max_request_rows: most rows (texts) in one request. More are INVALID_ARGUMENT.
        max_string_bytes: longest string in a request, in bytes. Longer ones are INVALID_ARGUMENT.
        max_batch_rows: most rows that requests waiting at the same time share in one run of the model. A single
            request may be larger; it runs by itself.
        num_parallel_runs: runs of the model at the same time. One run already uses all cores in most operations.
        max_queue_length: requests that may wait while the model is busy. Any more are UNAVAILABLE.
        timeout_seconds: longest time from the arrival of a request to its answer; then it is DEADLINE_EXCEEDED.
        poll_seconds: time between two looks for a newer version; 0 never looks again.
        stop_seconds: longest time that a stopping server gives to requests that have arrived.
        intra_op_threads: threads that share one operation of the model; 0 lets TensorFlow choose.
        inter_op_threads: threads that run operations of the model side by side; 0 lets TensorFlow choose.

    Raises:
        ValueError: if a number is out of its range.
    """

    host: str = "127.0.0.1"
    port: int = 8501
    grpc_port: int | None = None
    access_log: bool = False
    max_body_bytes: int = 8 * 2**20
    max_request_rows: int = 128
    max_string_bytes: int = 2**16
    max_batch_rows: int = 64
    num_parallel_runs: int = 1
    max_queue_length: int = 256
    timeout_seconds: float = 60.0
    poll_seconds: float = 2.0
    stop_seconds: float = 30.0
    intra_op_threads: int = 0
    inter_op_threads: int = 0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or isinstance(value, (str, bool)):
                continue
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name not in _MAY_BE_ZERO):
                rule = "at least 0" if field.name in _MAY_BE_ZERO else "positive"
                raise ValueError(f"`{field.name}` must be {rule}. Received: {value}")
            if field.name.endswith("port") and value > _MAX_PORT:
                raise ValueError(f"`{field.name}` must be at most {_MAX_PORT}. Received: {value}")
