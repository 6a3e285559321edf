"""What runs together and what does not, with a servable that holds each run until it is told to go on."""

import asyncio
import threading

import numpy as np
import pytest

from keras_transformer.server.batcher import Batcher
from keras_transformer.server.servable import ServingError


class HeldServable:
    """Doubles numbers, one run after the other, each when the test lets it go; fails on negative ones."""

    def __init__(self):
        self.runs = []
        self._started = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)

    def run(self, signature_name, inputs, timeout):
        self.runs.append((signature_name, {name: array.tolist() for name, array in inputs.items()}))
        self._started.release()
        assert self._may_go.acquire(timeout=300)
        if signature_name == "whole":
            return {"sum": np.array(inputs["x"].sum())}
        if (inputs["x"] < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative")
        return {"twice": 2 * inputs["x"]}

    async def started(self):
        assert await asyncio.to_thread(self._started.acquire, timeout=300)

    def let_go(self, count=1):
        for _ in range(count):
            self._may_go.release()


def x(*values):
    return {"x": np.array(values, np.int32)}


def run_test(test, **options):
    """Run a test with a servable and a batcher in an event loop; nothing may be left."""

    async def main():
        batcher = Batcher(**{"max_batch_rows": 8, "num_parallel_runs": 1, "max_queue_length": 100, **options})
        servable = HeldServable()
        async with asyncio.timeout(300):
            await test(servable, batcher)
            await batcher.wait_until_idle()
        assert batcher.queue_length == batcher.num_running == 0
        batcher.close()
        with pytest.raises(ServingError, match="stopping"):
            await batcher.run(servable, "s", x(1), 1)

    asyncio.run(main())


def submit(batcher, servable, inputs, signature="s", timeout=300):
    return asyncio.ensure_future(batcher.run(servable, signature, inputs, timeout))


async def twice(task):
    return (await task)["twice"].tolist()


def test_an_idle_batcher_waits_for_nobody():
    async def test(servable, batcher):
        for number in range(3):
            servable.let_go()
            assert await twice(submit(batcher, servable, x(number))) == [2 * number]
        assert servable.runs == [("s", {"x": [number]}) for number in range(3)]

    run_test(test)


def test_what_waits_runs_together():
    sizes = []

    async def test(servable, batcher):
        batcher.on_run = lambda *run: sizes.append(run)
        first = submit(batcher, servable, x(0))
        await servable.started()
        rest = [submit(batcher, servable, x(*values)) for values in ([1, 2], [], [3], [4, 5, 6], [7, 8, 9], [10])]
        await asyncio.sleep(0)
        assert (batcher.num_running, batcher.queue_length) == (1, 6)
        servable.let_go(3)
        assert await twice(first) == [0]
        assert [await twice(task) for task in rest] == [[2, 4], [], [6], [8, 10, 12], [14, 16, 18], [20]]
        # 8 rows at most; what does not fit waits, what is behind it and fits does not.
        assert [run["x"] for _, run in servable.runs] == [[0], [1, 2, 3, 4, 5, 6, 10], [7, 8, 9]]

    run_test(test)
    assert sizes == [("s", 1, 1), ("s", 5, 7), ("s", 1, 3)]


def test_a_large_request_runs_by_itself():
    async def test(servable, batcher):
        first, large, last = (submit(batcher, servable, x(*values)) for values in ([0], range(20), [1]))
        servable.let_go(3)
        await asyncio.gather(first, large, last)
        assert [len(run["x"]) for _, run in servable.runs] == [1, 20, 1]

    run_test(test)


def test_signatures_and_servables_do_not_mix():
    async def test(servable, batcher):
        other = HeldServable()
        other.let_go(9)
        first = submit(batcher, servable, x(0))
        await servable.started()
        tasks = [
            submit(batcher, one, x(number), signature)
            for number, (one, signature) in enumerate([(servable, "a"), (servable, "b"), (other, "a")] * 2)
        ]
        servable.let_go(9)
        assert [await twice(task) for task in (first, *tasks)] == [[0], *([2 * number] for number in range(6))]
        assert servable.runs == [("s", {"x": [0]}), ("a", {"x": [0, 3]}), ("b", {"x": [1, 4]})]
        assert other.runs == [("a", {"x": [2, 5]})]

    run_test(test)


def test_padding():
    class Rows:
        def run(self, signature_name, inputs, timeout):
            runs.append({name: array.tolist() for name, array in inputs.items()})
            return inputs

    runs = []
    inputs = [
        {"ids": np.array([[1]], np.int32), "words": np.array([[b"a\0", b"b"]], object)},
        {"ids": np.array([[2, 3, 4], [5, 6, 7]], np.int32), "words": np.array([[b"c"], [b""]], object)},
        {"ids": np.zeros((1, 0), np.int32), "words": np.array([[b"d"]], object)},
    ]

    async def test(servable, batcher):
        busy = submit(batcher, servable, x(0))
        await servable.started()
        tasks = [submit(batcher, rows, one) for one in inputs]
        servable.let_go()
        results = await asyncio.gather(busy, *tasks)
        assert runs == [
            {
                "ids": [[1, 0, 0], [2, 3, 4], [5, 6, 7], [0, 0, 0]],
                "words": [[b"a\0", b"b"], [b"c", b""], [b"", b""], [b"d", b""]],
            }
        ]
        assert [result["ids"].tolist() for result in results[1:]] == [
            [[1, 0, 0]],
            [[2, 3, 4], [5, 6, 7]],
            [[0, 0, 0]],
        ]

    rows = Rows()
    run_test(test)


def test_floats_are_not_padded():
    async def test(servable, batcher):
        arrays = [np.ones(shape, np.float32) for shape in ((1, 2), (1, 3), (2, 2))]
        busy = submit(batcher, servable, x(0))
        await servable.started()
        tasks = [submit(batcher, servable, {"x": array}) for array in arrays]
        servable.let_go(3)
        await asyncio.gather(busy, *tasks)
        assert [np.shape(run["x"]) for _, run in servable.runs] == [(1,), (3, 2), (1, 3)]

    run_test(test)


def test_scalars_run_by_themselves():
    async def test(servable, batcher):
        servable.let_go(4)
        results = await asyncio.gather(*(batcher.run(servable, "s", {"x": np.array(i)}, 300) for i in range(4)))
        assert [result["twice"] for result in results] == [0, 2, 4, 6]
        assert len(servable.runs) == 4

    run_test(test)


def test_a_bad_request_fails_alone():
    async def test(servable, batcher):
        first = submit(batcher, servable, x(0))
        await servable.started()
        tasks = [submit(batcher, servable, x(*values)) for values in ([1], [2, -3], [4])]
        servable.let_go(1 + 1 + 3)
        assert await twice(first) == [0]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [results[0]["twice"].tolist(), results[2]["twice"].tolist()] == [[2], [8]]
        assert (results[1].code, results[1].message) == ("INVALID_ARGUMENT", "negative")
        assert [run["x"] for _, run in servable.runs] == [[0], [1, 2, -3, 4], [1], [2, -3], [4]]

    run_test(test)


def test_outputs_without_rows_are_run_one_by_one():
    async def test(servable, batcher):
        tasks = [submit(batcher, servable, x(number, number), "whole") for number in range(3)]
        servable.let_go(9)
        assert [(await task)["sum"].tolist() for task in tasks] == [0, 2, 4]

    run_test(test)


def test_a_fault_of_the_servable_reaches_its_request():
    class Broken:
        def run(self, signature_name, inputs, timeout):
            raise ZeroDivisionError

    async def test(servable, batcher):
        results = await asyncio.gather(
            *(batcher.run(broken, "s", x(number), 300) for number in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [ZeroDivisionError] * 3

    broken = Broken()
    run_test(test)


def test_full_queue():
    async def test(servable, batcher):
        tasks = [submit(batcher, servable, x(number)) for number in range(4)]
        await servable.started()
        assert batcher.queue_length == 2
        with pytest.raises(ServingError, match="queue of waiting requests is full") as caught:
            await tasks.pop()
        assert caught.value.code == "UNAVAILABLE"
        servable.let_go(2)
        assert [await twice(task) for task in tasks] == [[0], [2], [4]]

    run_test(test, max_queue_length=2)


def test_a_request_that_waits_too_long_is_not_run():
    async def test(servable, batcher):
        first = submit(batcher, servable, x(0))
        await servable.started()
        late, patient = submit(batcher, servable, x(1), timeout=0.01), submit(batcher, servable, x(2))
        with pytest.raises(ServingError, match=r"longer than 0\.01 seconds") as caught:
            await late
        assert caught.value.code == "DEADLINE_EXCEEDED"
        servable.let_go(2)
        assert [await twice(first), await twice(patient)] == [[0], [4]]
        assert [run["x"] for _, run in servable.runs] == [[0], [2]]

    run_test(test)


def test_a_request_whose_time_is_up_while_it_runs_leaves_the_others_alone():
    async def test(servable, batcher):
        first = submit(batcher, servable, x(0))
        await servable.started()
        late, patient = submit(batcher, servable, x(1), timeout=0.2), submit(batcher, servable, x(2))
        servable.let_go()
        await servable.started()
        with pytest.raises(ServingError, match="longer than"):
            await late
        servable.let_go()
        assert [await twice(first), await twice(patient)] == [[0], [4]]
        assert [run["x"] for _, run in servable.runs] == [[0], [1, 2]]

    run_test(test)


def test_clients_that_leave():
    async def test(servable, batcher):
        running, waiting, patient = (submit(batcher, servable, x(number)) for number in range(3))
        await servable.started()
        running.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        servable.let_go(2)
        assert await twice(patient) == [4]
        assert running.cancelled()
        assert waiting.cancelled()
        assert [run["x"] for _, run in servable.runs] == [[0], [2]]

    run_test(test)


def test_parallel_runs():
    async def test(servable, batcher):
        tasks = [submit(batcher, servable, x(number)) for number in range(5)]
        await servable.started()
        await servable.started()
        assert (batcher.num_running, batcher.queue_length) == (2, 3)
        servable.let_go(5)
        assert [await twice(task) for task in tasks] == [[2 * number] for number in range(5)]

    run_test(test, num_parallel_runs=2)


def test_waiting_until_idle():
    async def test(servable, batcher):
        other = HeldServable()
        tasks = [submit(batcher, servable, x(1)), submit(batcher, other, x(2))]
        await servable.started()
        waits = [asyncio.ensure_future(batcher.wait_until_idle(one)) for one in (servable, other, None)]
        servable.let_go()
        await waits[0]
        await other.started()
        assert not waits[1].done()
        assert not waits[2].done()
        batcher.close()  # what has arrived is still run
        other.let_go()
        await asyncio.gather(*waits, *tasks)

    run_test(test)
