"""What Prometheus can ask a server: requests, latencies, batches, queue, version."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    exposition,
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Metrics of the served versions of a model, by whatever protocol its requests come.

    Args:
        versions: `ServedVersions`, which reports requests and runs to this object from now on.

    Attributes:
        content_type: of what `text` gives.
    """

    content_type = exposition.CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, versions):
        # Its own registry, so that several servers fit in one process.
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "keras_transformer_"
        self._requests = Counter(
            prefix + "requests",
            "Requests to predict, by signature (empty if none has the name) and status code",
            ["signature", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            prefix + "request_seconds",
            "Time from the arrival of a request to predict to its answer",
            ["signature"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._run_rows = Histogram(
            prefix + "run_rows", "Rows in a run of the model", ["signature"], buckets=_ROWS, registry=registry
        )
        self._run_requests = Histogram(
            prefix + "run_requests", "Requests in a run of the model", ["signature"], buckets=_ROWS, registry=registry
        )
        self._responses = Counter(
            prefix + "http_responses", "Answers to HTTP requests of any kind", ["status"], registry=registry
        )
        for name, text, value in (
            ("requests_in_flight", "Requests to predict that are not answered", lambda: versions.num_in_flight),
            ("queue_length", "Requests that wait for a run", lambda: versions.batcher.queue_length),
            ("runs_in_flight", "Runs of the model that are going on", lambda: versions.batcher.num_running),
            ("model_version", "Version that is served; 0 if none is", lambda: versions.current_version or 0),
        ):
            Gauge(prefix + name, text, registry=registry).set_function(value)
        versions.on_request = self.observe_request
        versions.batcher.on_run = self._observe_run

    def observe_request(self, signature_name, code, seconds):
        """Count a request to predict.

        Args:
            signature_name: name of a signature that exists, else empty: a client must not invent metrics.
            code: name of the status code of the answer; "OK" if it has a result.
            seconds: time that it took.
        """
        self._requests.labels(signature_name, code).inc()
        self._seconds.labels(signature_name).observe(seconds)

    def observe_response(self, status):
        """Count an answer to an HTTP request, by its status."""
        self._responses.labels(str(status)).inc()

    def text(self):
        """Return all metrics in the text format of Prometheus, as bytes."""
        return exposition.generate_latest(self._registry)

    def _observe_run(self, signature_name, num_requests, num_rows):
        self._run_rows.labels(signature_name).observe(num_rows)
        self._run_requests.labels(signature_name).observe(num_requests)
