"""Requests that wait while the model is busy become the next batch; when it is idle, none waits."""

import asyncio
import collections
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_transformer.server.servable import ServingError


class Batcher:
    """Run requests on servables, those that come while a run is going on together in the next one.

    Requests share a run if they ask for the same signature of the same servable. Their rows are concatenated on axis 0;
    integers and strings that differ in another dimension are padded with 0 and "" up to the longest, other types must
    agree. Outputs are cut apart again, so that they may hold more padding than those of a request by itself. If a
    shared run fails, its requests run one by one, so that one bad request fails alone.

    All methods belong to one event loop; the runs themselves have threads of their own.

    Args:
        max_batch_rows: most rows of a shared run. A single request may be larger.
        num_parallel_runs: runs at the same time.
        max_queue_length: requests that may wait.
        on_run: function `(signature_name, num_requests, num_rows)`, called on the event loop after each run.

    Attributes:
        num_running: runs that are going on.
        queue_length: requests that wait.
    """

    def __init__(self, *, max_batch_rows: int, num_parallel_runs: int, max_queue_length: int, on_run=None):
        self._max_batch_rows = max_batch_rows
        self._num_parallel_runs = num_parallel_runs
        self._max_queue_length = max_queue_length
        self.on_run = on_run
        self._queue = collections.deque()
        self._tasks = {}  # running task to its servable
        self._closed = False
        self._changed = asyncio.Event()
        self._executor = ThreadPoolExecutor(num_parallel_runs, thread_name_prefix="run")

    @property
    def num_running(self):
        return len(self._tasks)

    @property
    def queue_length(self):
        return len(self._queue)

    async def run(self, servable, signature_name, inputs, timeout):
        """Run a request; see `Servable.run`. `timeout` counts from now, time in the queue included.

        Raises:
            ServingError: UNAVAILABLE if the queue is full or the batcher closed, DEADLINE_EXCEEDED, or what the run
                raises.
        """
        if self._closed:
            raise ServingError("UNAVAILABLE", "The server is stopping.")
        if self.num_running >= self._num_parallel_runs and self.queue_length >= self._max_queue_length:
            raise ServingError("UNAVAILABLE", "The queue of waiting requests is full.")
        loop = asyncio.get_running_loop()
        request = _Request(servable, signature_name, inputs, loop.time() + timeout, loop.create_future())
        self._queue.append(request)
        self._start_runs()
        try:
            async with asyncio.timeout_at(request.deadline):
                return await request.result
        except TimeoutError:
            raise ServingError("DEADLINE_EXCEEDED", f"The request took longer than {timeout:g} seconds.") from None
        finally:
            # A client that has left, or whose time is up, needs no run any more.
            if request in self._queue:
                self._queue.remove(request)
                self._changed.set()

    async def wait_until_idle(self, servable=None):
        """Return when no request waits for or runs on a servable; any servable by default."""

        def is_busy():
            busy = [*self._tasks.values(), *(request.servable for request in self._queue)]
            return bool(busy) if servable is None else any(one is servable for one in busy)

        while is_busy():
            self._changed.clear()
            await self._changed.wait()

    def close(self):
        """Refuse requests from now on. Those that wait are still run."""
        self._closed = True
        if not self._tasks:
            self._executor.shutdown(wait=False)

    # === Runs ===

    def _start_runs(self):
        while self._queue and self.num_running < self._num_parallel_runs:
            batch = self._take_batch()
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._tasks[task] = batch[0].servable
            task.add_done_callback(self._finish)

    def _take_batch(self):
        """Return the oldest request, and those behind it that can share its run."""
        first = self._queue.popleft()
        batch, num_rows = [first], first.num_rows
        if first.key is not None:
            for request in list(self._queue):
                if request.key == first.key and num_rows + request.num_rows <= self._max_batch_rows:
                    self._queue.remove(request)
                    batch.append(request)
                    num_rows += request.num_rows
        return batch

    async def _run(self, batch):
        loop = asyncio.get_running_loop()
        outcomes = await loop.run_in_executor(self._executor, _outcomes, batch, loop.time)
        for request, outcome in zip(batch, outcomes, strict=True):
            if request.result.done():
                continue
            if isinstance(outcome, Exception):
                request.result.set_exception(outcome)
            else:
                request.result.set_result(outcome)
        if self.on_run is not None:
            self.on_run(batch[0].signature_name, len(batch), sum(request.num_rows for request in batch))

    def _finish(self, task):
        del self._tasks[task]
        self._changed.set()
        if self._queue:
            self._start_runs()
        elif self._closed and not self._tasks:
            self._executor.shutdown(wait=False)
        if not task.cancelled():
            task.result()


@dataclasses.dataclass(eq=False)
class _Request:
    servable: object
    signature_name: str
    inputs: dict[str, np.ndarray]
    deadline: float
    result: asyncio.Future

    def __post_init__(self):
        arrays = self.inputs.values()
        is_batched = bool(self.inputs) and all(array.ndim > 0 for array in arrays)
        self.num_rows = len(next(iter(arrays))) if is_batched else 1
        # Requests of equal keys can share a run; `None` runs alone.
        self.key = None
        if is_batched:
            shapes = tuple((name, _free_shape(self.inputs[name])) for name in sorted(self.inputs))
            self.key = (id(self.servable), self.signature_name, shapes)


def _free_shape(array):
    """Return what must be equal to concatenate: the rank where padding is known, else all but the rows."""
    return array.ndim if array.dtype.kind in "iuO" else array.shape[1:]


def _outcomes(batch, now):
    """Return, in a thread of its own, what each request of a batch gets: outputs or an exception."""
    if len(batch) > 1:
        try:
            return _run_together(batch, now)
        except Exception as error:
            if getattr(error, "code", None) == "DEADLINE_EXCEEDED":  # the latest of all deadlines
                return [error] * len(batch)
    outcomes = []
    for request in batch:
        remaining = request.deadline - now()
        try:
            if request.result.done() or remaining <= 0:
                raise ServingError("DEADLINE_EXCEEDED", "The request waited too long.")
            outcomes.append(request.servable.run(request.signature_name, request.inputs, remaining))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def _run_together(batch, now):
    first = batch[0]
    inputs = {name: _concatenate([request.inputs[name] for request in batch]) for name in first.inputs}
    ends = np.cumsum([request.num_rows for request in batch])
    # A request that is late is answered when it is late; the others have their time.
    remaining = max(request.deadline for request in batch) - now()
    outputs = first.servable.run(first.signature_name, inputs, max(remaining, 1e-3))
    for name, array in outputs.items():
        if array.ndim == 0 or len(array) != ends[-1]:
            raise ServingError("INTERNAL", f"Output `{name}` has no row for each row of the inputs.")
    return [
        {name: array[end - request.num_rows : end] for name, array in outputs.items()}
        for request, end in zip(batch, ends, strict=True)
    ]


def _concatenate(arrays):
    sizes = np.max([array.shape[1:] for array in arrays], axis=0) if arrays[0].ndim > 1 else ()
    padding = b"" if arrays[0].dtype.kind == "O" else 0
    result = np.full((sum(map(len, arrays)), *(int(size) for size in sizes)), padding, arrays[0].dtype)
    start = 0
    for array in arrays:
        result[(slice(start, start + len(array)), *(slice(size) for size in array.shape[1:]))] = array
        start += len(array)
    return result
