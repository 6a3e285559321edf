"""The versions of a model under one name: the newest is served, and replaced by newer ones meanwhile."""

import asyncio
import dataclasses
import logging
from pathlib import Path

import numpy as np

from keras_transformer.files import SAVED_MODEL_FILE, exported_versions, is_export
from keras_transformer.server.batcher import Batcher
from keras_transformer.server.options import ServingOptions
from keras_transformer.server.servable import Servable, ServingError

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """State of a version: START, LOADING, AVAILABLE, UNLOADING or END, with a code other than OK if it failed."""

    version: int
    state: str
    code: str = "OK"
    message: str = ""


class ServedVersions:
    """Answer requests with the newest version of a model.

    A version is served after it is loaded and its warm-up requests are replayed. A newer one replaces it without
    losing a request: what has arrived is answered by the version it arrived at. One that cannot be loaded is reported
    in its status and in the log, and the version before it goes on; it is tried again when its files change. If the
    folder of the served version goes, the newest of the others takes its place; the last one stays.

    All methods belong to one event loop.

    Args:
        name: of the model.
        directory: a version (a folder with `saved_model.pb`), or a folder of versions whose names are numbers.
        options: `ServingOptions`. Defaults to its defaults.

    Attributes:
        batcher: the `Batcher` that all requests go through.
        num_in_flight: requests that have arrived and are not answered.
        on_request: function `(signature_name, code, seconds)`, called after each request; the name is empty if no
            signature has it. Not set at first.
    """

    def __init__(self, name: str, directory: str | Path, options: ServingOptions | None = None):
        self.name = name
        self.directory = Path(directory)
        self.options = options or ServingOptions()
        self.batcher = Batcher(
            max_batch_rows=self.options.max_batch_rows,
            num_parallel_runs=self.options.num_parallel_runs,
            max_queue_length=self.options.max_queue_length,
        )
        self.num_in_flight = 0
        self.on_request = None
        self._current = None
        self._retired = []  # servables that still run what has arrived
        self._statuses = {}
        self._failed = {}  # version to the state of its file when loading failed
        self._tasks = set()
        self._stopping = False

    # === Life ===

    async def start(self):
        """Load the newest version that can be loaded, then look for newer ones from time to time.

        Raises:
            ServingError: NOT_FOUND if there is no version; if no version can be loaded, the newest one's error.
        """
        if not exported_versions(self.directory):
            raise ServingError(
                "NOT_FOUND", f"There must be a version of the model (N/saved_model.pb) in {self.directory}"
            )
        errors = []
        while self._current is None:
            error = await self._update()
            if error is None:
                break
            errors.append(error)
        if self._current is None:
            raise errors[0]
        if self.options.poll_seconds and not is_export(self.directory):
            self._spawn(self._poll())

    async def stop(self):
        """Refuse requests from now on, answer those that have arrived, and free the model.

        What is not answered after `stop_seconds` is given up.
        """
        self._stopping = True
        self.batcher.close()
        try:
            async with asyncio.timeout(self.options.stop_seconds):
                await self.batcher.wait_until_idle()
        except TimeoutError:
            _LOGGER.warning("Gave up requests that took longer than %g seconds to finish", self.options.stop_seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for servable in (*self._retired, self._current):
            if servable is not None:
                self._statuses[servable.version] = VersionStatus(servable.version, "END")
                await asyncio.to_thread(servable.close)
        self._current, self._retired = None, []

    async def _poll(self):
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            try:
                await self._update()
            except Exception:
                _LOGGER.exception("Looking for versions in %s failed", self.directory)

    async def _update(self):
        """Load the newest version if it is not the one that is served; return the error if that fails."""
        paths = exported_versions(self.directory)
        wanted = [version for version, path in paths.items() if self._failed.get(version) != _state_of_files(path)]
        if not wanted or (self._current is not None and max(wanted) == self._current.version):
            return None
        version = max(wanted)
        path = paths[version]
        self._failed[version] = _state_of_files(path)
        self._statuses[version] = VersionStatus(version, "LOADING")
        try:
            servable = await asyncio.to_thread(self._load, path)
        except ServingError as error:
            self._statuses[version] = VersionStatus(version, "END", error.code, error.message)
            _LOGGER.error("Version %d of %s is not served: %s", version, self.name, error)
            return error
        del self._failed[version]
        before, self._current = self._current, servable
        self._statuses[version] = VersionStatus(version, "AVAILABLE")
        _LOGGER.info("Version %d of %s is served", version, self.name)
        if before is not None:
            self._statuses[before.version] = VersionStatus(before.version, "UNLOADING")
            self._retired.append(before)
            self._spawn(self._retire(before))
        return None

    def _load(self, path):
        servable = Servable(
            path,
            intra_op_threads=self.options.intra_op_threads,
            inter_op_threads=self.options.inter_op_threads,
        )
        try:
            servable.warm_up()
        except BaseException:
            servable.close()
            raise
        return servable

    async def _retire(self, servable):
        await self.batcher.wait_until_idle(servable)
        self._retired.remove(servable)
        await asyncio.to_thread(servable.close)
        self._statuses[servable.version] = VersionStatus(servable.version, "END")

    def _spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # === Requests ===

    def servable(self, version: int | None = None) -> Servable:
        """Return the loaded version of that number, the newest by default.

        Raises:
            ServingError: NOT_FOUND if another one is served, UNAVAILABLE if none is.
        """
        if self._current is None:
            raise ServingError("UNAVAILABLE", "No version is loaded yet.")
        if version in (None, self._current.version):
            return self._current
        request = f"Latest({self.name})" if version is None else f"Specific({self.name}, {version})"
        raise ServingError("NOT_FOUND", f"Servable not found for request: {request}")

    def status(self, version: int | None = None) -> list[VersionStatus]:
        """Return a list of `VersionStatus`, newest first: of one version, or of all; NOT_FOUND if there is none."""
        if version is None:
            if not self._statuses:
                raise ServingError("NOT_FOUND", f"Could not find any versions of model {self.name}")
            return [self._statuses[number] for number in sorted(self._statuses, reverse=True)]
        if version not in self._statuses:
            raise ServingError("NOT_FOUND", f"Could not find version {version} of model {self.name}")
        return [self._statuses[version]]

    @property
    def current_version(self):
        """Number of the version that is served, or `None`."""
        return None if self._current is None else self._current.version

    @property
    def is_ready(self):
        """Whether a version is served and requests are accepted."""
        return self._current is not None and not self._stopping

    async def predict(
        self,
        signature_name: str,
        inputs: dict[str, np.ndarray],
        version: int | None = None,
        timeout: float | None = None,
    ) -> tuple[int, dict[str, np.ndarray]]:
        """Run a signature.

        Args:
            signature_name: name of a signature; empty for `serving_default`.
            inputs: by name, arrays; strings as arrays of objects, which are bytes.
            version: number of the version. Defaults to the newest.
            timeout: seconds from now, at most `timeout_seconds` of the options, which is the default.

        Returns:
            Number of the version that answered, and arrays by name.

        Raises:
            ServingError: if the request does not fit the signature or the limits, or is not answered.
        """
        start = asyncio.get_running_loop().time()
        known_name, code = "", "INTERNAL"
        self.num_in_flight += 1
        try:
            servable = self.servable(version)
            signature = servable.signature(signature_name)
            known_name = signature.name
            signature.check(inputs)
            self._check_limits(inputs)
            limit = self.options.timeout_seconds
            timeout = limit if timeout is None else min(timeout, limit)
            outputs = await self.batcher.run(servable, signature.name, inputs, timeout)
            code = "OK"
            return servable.version, outputs
        except ServingError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self.num_in_flight -= 1
            if self.on_request is not None:
                self.on_request(known_name, code, asyncio.get_running_loop().time() - start)

    def _check_limits(self, inputs):
        for name, array in inputs.items():
            if array.ndim and len(array) > self.options.max_request_rows:
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"A request must have at most {self.options.max_request_rows} rows. Received: {len(array)}",
                )
            if array.dtype.kind == "O":
                longest = max(map(len, array.flat), default=0)
                if longest > self.options.max_string_bytes:
                    raise ServingError(
                        "INVALID_ARGUMENT",
                        f"A string of input `{name}` must have at most {self.options.max_string_bytes} bytes. "
                        f"Received: {longest}",
                    )


def _state_of_files(path):
    """Return what changes when a version is written anew; `None` if it is gone."""
    try:
        state = (path / SAVED_MODEL_FILE).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
