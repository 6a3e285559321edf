"""HTTP: TensorFlow Serving's REST API, health, metrics, and a page to try the model in a browser."""

import asyncio
import contextlib
import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web

from keras_transformer.files import DESCRIPTION_FILE
from keras_transformer.server import rest
from keras_transformer.server.metrics import Metrics
from keras_transformer.server.servable import DEFAULT_SIGNATURE, ServingError
from keras_transformer.server.versions import ServedVersions

_LOGGER = logging.getLogger(__name__)
# TensorFlow Serving's own paths, in any case of letters, and below a model also the export's `translator.json`.
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(rf"/v1/models/(?P<name>[^/:]+){_VERSION}:(?P<verb>classify|regress|predict)", re.IGNORECASE)
_MODEL = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+){_VERSION}(?:/(?P<part>metadata|translator))?)?", re.IGNORECASE)
_MAX_VERSION = 2**63 - 1

_PAGE = Path(__file__).parent / "page"
# Stated here, since what a system knows about file names differs, and browsers are told not to guess.
_CONTENT_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Server": "keras-transformer",
}
_SIGNATURE = web.RequestKey("signature", str)
# Sizes from which JSON is worked on in a thread, so that other requests are not kept waiting.
_LARGE_BODY = 2**16
_LARGE_OUTPUT = 2**13
# Seconds for which a client is asked to stay away when the queue is full.
_RETRY_AFTER = "1"


class HttpServer:
    """Answer HTTP requests with a model; see the module `rest` for the bodies of requests and answers.

    `GET /v1/models/NAME[/versions/N]` is the status, `.../metadata` the signatures, `POST ...:predict` a request.
    Besides TensorFlow Serving's API, `GET /v1/models` lists the model with its signatures,
    `/v1/models/NAME/translator` is the export's `translator.json`, `/healthz` is 200 if and only if a version is
    served, `/metrics` and `/monitoring/prometheus/metrics` are for Prometheus, `/` is the page.

    Args:
        versions: `ServedVersions`, whose options are also those of the server. It is neither started nor stopped here.

    Attributes:
        port: that it listens at, after `start`.
        metrics: `Metrics` of the model.
    """

    def __init__(self, versions: ServedVersions):
        self.versions = versions
        self.port = versions.options.port
        self.metrics = Metrics(versions)
        # No answer is larger than what the client asked for, but a body may be as long as the options allow.
        application = web.Application(client_max_size=versions.options.max_body_bytes, middlewares=[self._middleware])
        application.on_response_prepare.append(_add_headers)
        application.router.add_get("/healthz", self._health)
        for path in ("/metrics", "/monitoring/prometheus/metrics"):
            application.router.add_get(path, self._metrics)
        application.router.add_route("*", "/{path:(?i:v1)(?:/.*)?}", self._api)
        for path in sorted(_PAGE.iterdir()) if _PAGE.is_dir() else []:
            if path.suffix in _CONTENT_TYPES:
                name = "" if path.name == "index.html" else path.name
                application.router.add_get(f"/{name}", _file_handler(path))
        # The client's own faults in HTTP itself are no news.
        logger = logging.getLogger(f"{__name__}.protocol")
        logger.setLevel(logging.CRITICAL)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=logger,
            handler_cancellation=True,  # a client that has left needs no answer
            shutdown_timeout=versions.options.stop_seconds,
        )
        self._site = None

    @property
    def address(self):
        """URL of the server."""
        host = self.versions.options.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self):
        """Listen, in the event loop of the model.

        Raises:
            OSError: if the address is not free.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.versions.options.host, self.port)
        await site.start()
        self._site = site
        self.port = self._runner.addresses[0][1]

    async def stop_listening(self):
        """Take no more connections; those that are open go on."""
        if self._site is not None:
            await self._site.stop()

    async def stop(self):
        """End. Requests that have arrived are answered within `stop_seconds`."""
        await self._runner.cleanup()

    # === Every request ===

    @web.middleware
    async def _middleware(self, request, handler):
        start = time.monotonic()
        status = rest.HTTP_STATUS["CANCELLED"]  # for the log, where no answer is given
        try:
            response = await self._answer(request, handler)
            status = response.status
            return response
        finally:
            self.metrics.observe_response(status)
            if self.versions.options.access_log:
                _log_access(request, status, time.monotonic() - start)

    async def _answer(self, request, handler):
        try:
            return await handler(request)
        except ServingError as error:
            status, message = rest.HTTP_STATUS[error.code], error.message
        except web.HTTPException as error:
            status, message = error.status, f"{error.reason}: {request.method} {request.path}"
        except (web.RequestPayloadError, ConnectionError) as error:
            status, message = 400, f"The body cannot be read: {error}"
        except Exception:
            _LOGGER.exception("%s %s failed", request.method, request.path)
            status, message = 500, "The server failed; its log says how."
        response = web.Response(status=status, body=rest.error_body(message), content_type="application/json")
        if status == rest.HTTP_STATUS["UNAVAILABLE"]:
            response.headers["Retry-After"] = _RETRY_AFTER
        return response

    # === TensorFlow Serving's API ===

    async def _api(self, request):
        path = request.rel_url.raw_path
        if request.method == "POST" and (match := _PREDICT.fullmatch(path)):
            return await self._predict(request, match)
        if request.method == "GET" and (match := _MODEL.fullmatch(path)):
            if match["name"] is None:
                return _json_response(self._models())
            return self._describe(match)
        raise ServingError("INVALID_ARGUMENT", f"Malformed request: {request.method} {request.path}")

    def _version(self, match):
        """Return the version that a path names; `ServingError` unless the path names this model."""
        name = unquote(match["name"])
        if name != self.versions.name:
            raise ServingError("NOT_FOUND", f"Servable not found for request: Latest({name})")
        if match["label"] is not None:
            raise ServingError("INVALID_ARGUMENT", f"Unrecognized servable version label: {unquote(match['label'])}")
        if match["version"] is None:
            return None
        # A longer text is not even turned into a number.
        if len(match["version"]) > len(str(_MAX_VERSION)) or int(match["version"]) > _MAX_VERSION:
            raise ServingError("INVALID_ARGUMENT", f"Failed to convert version: {match['version'][:80]} to numeric.")
        return int(match["version"])

    def _models(self):
        models = []
        with contextlib.suppress(ServingError):  # nothing is loaded
            servable = self.versions.servable()
            signatures = list(servable.signatures)
            models.append({"name": self.versions.name, "version": servable.version, "signatures": signatures})
        return rest.to_json({"models": models})

    def _describe(self, match):
        version, part = self._version(match), (match["part"] or "").lower()
        if not part:
            return _json_response(rest.status_body(self.versions.status(version)))
        servable = self.versions.servable(version)
        if part == "metadata":
            return _json_response(rest.metadata_body(self.versions.name, servable))
        try:
            return _json_response((servable.path / DESCRIPTION_FILE).read_bytes())
        except OSError:
            raise ServingError("NOT_FOUND", f"The export has no {DESCRIPTION_FILE}") from None

    async def _predict(self, request, match):
        start = time.monotonic()
        try:
            version = self._version(match)
            if match["verb"].lower() != "predict":
                raise ServingError("INVALID_ARGUMENT", f"There is no signature to {match['verb'].lower()} with.")
            body = await self._read(request)
            document = await _maybe_in_thread(len(body) >= _LARGE_BODY, rest.parse_request, body)
            name = rest.signature_name(document) or DEFAULT_SIGNATURE
            signature = self.versions.servable(version).signatures.get(name)
            if signature is None:
                raise ServingError("INVALID_ARGUMENT", f'Serving signature name: "{name}" not found in signature def')
            inputs, in_rows = await _maybe_in_thread(
                len(body) >= _LARGE_BODY, rest.decode_request, document, signature.inputs
            )
        except ServingError as error:
            self.metrics.observe_request("", error.code, time.monotonic() - start)
            raise
        request[_SIGNATURE] = signature.name
        _, outputs = await self.versions.predict(signature.name, inputs, version)
        num_values = sum(array.size for array in outputs.values())
        return _json_response(
            await _maybe_in_thread(num_values >= _LARGE_OUTPUT, rest.encode_response, outputs, in_rows)
        )

    async def _read(self, request):
        limit = self.versions.options.max_body_bytes
        if (request.content_length or 0) > limit:
            raise web.HTTPRequestEntityTooLarge(limit, request.content_length)
        try:
            async with asyncio.timeout(self.versions.options.timeout_seconds):
                return await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    # === The rest ===

    async def _health(self, request):
        if not self.versions.is_ready:
            raise ServingError("UNAVAILABLE", "No version is served.")
        return _json_response(rest.to_json({"model": self.versions.name, "version": self.versions.current_version}))

    async def _metrics(self, request):
        return web.Response(body=self.metrics.text(), headers={"Content-Type": self.metrics.content_type})


def _json_response(body):
    return web.Response(body=body, content_type="application/json")


def _file_handler(path):
    body = path.read_bytes()

    async def handler(request):
        return web.Response(body=body, content_type=_CONTENT_TYPES[path.suffix], charset="utf-8")

    return handler


async def _add_headers(request, response):
    response.headers.update(_HEADERS)


async def _maybe_in_thread(is_large, function, *arguments):
    return await asyncio.to_thread(function, *arguments) if is_large else function(*arguments)


def _log_access(request, status, seconds):
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "remote": request.remote,
        "method": request.method,
        "path": request.path,
        "status": status,
        "milliseconds": round(seconds * 1000, 1),
    }
    if _SIGNATURE in request:
        line["signature"] = request[_SIGNATURE]
    # The escapes of ASCII keep a client from writing lines of its own, whatever the terminal.
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(json.dumps(line), file=sys.stdout, flush=True)
