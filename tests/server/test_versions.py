"""A model under a name: limits, versions that come, fail and go, a stop in order."""

import asyncio
import shutil

import numpy as np
import pytest

from keras_transformer.server.options import ServingOptions
from keras_transformer.server.servable import ServingError
from keras_transformer.server.versions import ServedVersions, VersionStatus

ENDLESS = {"steps": np.array([2**31 - 1], np.int32)}


def texts(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return {"text": array}


def with_versions(test, directory, **options):
    async def main():
        versions = ServedVersions("toy", directory, ServingOptions(**{"poll_seconds": 0.02, **options}))
        async with asyncio.timeout(300):
            await versions.start()
            await test(versions)
            await versions.stop()
        return versions

    return asyncio.run(main())


async def failure(versions, *arguments, **named):
    with pytest.raises(ServingError) as caught:
        await versions.predict(*arguments, **named)
    return caught.value.code, caught.value.message


async def greeting(versions):
    version, outputs = await versions.predict("greeting", texts(b"you"))
    return version, outputs["greeting"][0].decode()


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def test_requests_and_limits(toy):
    async def test(versions):
        assert versions.is_ready
        assert versions.current_version == 7
        for version in (None, 7):
            number, outputs = await versions.predict("", texts(b"a"), version)
            assert number == 7
            assert outputs["upper"].tolist() == [b"A"]
        assert await failure(versions, "", texts(b"a"), 8) == (
            "NOT_FOUND",
            "Servable not found for request: Specific(toy, 8)",
        )
        assert (await failure(versions, "nothing", texts(b"a")))[0] == "FAILED_PRECONDITION"
        assert (await failure(versions, "", {}))[0] == "INVALID_ARGUMENT"
        await versions.predict("", texts(*[b"1234"] * 3))
        assert await failure(versions, "", texts(*[b"a"] * 4)) == (
            "INVALID_ARGUMENT",
            "A request must have at most 3 rows. Received: 4",
        )
        assert await failure(versions, "", texts(b"", b"12345")) == (
            "INVALID_ARGUMENT",
            "A string of input `text` must have at most 4 bytes. Received: 5",
        )
        assert await failure(versions, "slow", ENDLESS, timeout=0.05) == (
            "DEADLINE_EXCEEDED",
            "The request took longer than 0.05 seconds.",
        )
        assert (await failure(versions, "slow", ENDLESS, timeout=1e9))[1].endswith("longer than 0.2 seconds.")
        assert versions.num_in_flight == 0

    versions = with_versions(test, toy, max_request_rows=3, max_string_bytes=4, timeout_seconds=0.2)
    assert not versions.is_ready
    assert versions.status() == [VersionStatus(7, "END")]


def test_reports(toy):
    reports = []

    async def test(versions):
        versions.on_request = lambda *report: reports.append(report[:2])
        await versions.predict("", texts(b"a"))
        await failure(versions, "no such name", texts(b"a"))
        await failure(versions, "picky", texts(b"bad"))
        task = asyncio.ensure_future(versions.predict("slow", ENDLESS))
        await until(lambda: versions.num_in_flight == 1 and versions.batcher.num_running)
        task.cancel()
        await asyncio.wait([task])
        assert versions.num_in_flight == 0

    with_versions(test, toy, timeout_seconds=1.0)
    assert reports == [
        ("serving_default", "OK"),
        ("", "FAILED_PRECONDITION"),
        ("picky", "INVALID_ARGUMENT"),
        ("slow", "CANCELLED"),
    ]


def test_status(toy):
    async def test(versions):
        assert versions.status() == versions.status(7) == [VersionStatus(7, "AVAILABLE")]
        with pytest.raises(ServingError, match="Could not find version 8 of model toy") as caught:
            versions.status(8)
        assert caught.value.code == "NOT_FOUND"

    with_versions(test, toy)


def test_before_it_is_loaded(toy):
    async def main():
        versions = ServedVersions("toy", toy)
        assert not versions.is_ready
        assert (await failure(versions, "", texts(b"a")))[0] == "UNAVAILABLE"
        with pytest.raises(ServingError, match="Could not find any versions of model toy"):
            versions.status()

    asyncio.run(main())


def test_a_single_version_folder(toy):
    async def test(versions):
        assert versions.current_version == 7
        assert versions.servable().path == toy / "7"

    with_versions(test, toy / "7")


@pytest.mark.parametrize("names", [None, [], ["new", "1.tmp", "x1"], ["1"]])
def test_no_version(tmp_path, names):
    base = tmp_path / "base"
    for name in names or []:
        (base / name).mkdir(parents=True)
        if name != "1":  # which is not written to the end
            (base / name / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ServingError, match=r"must be a version of the model \(N/saved_model.pb\) in") as caught:
        with_versions(None, base)
    assert caught.value.code == "NOT_FOUND"


def test_newer_versions_replace_older_ones(toy, write_toy_model, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(toy / "7", base / "2")
    shutil.copytree(toy / "7", base / "1")
    write_toy_model(tmp_path / "ten", greeting="good day")

    async def test(versions):
        assert await greeting(versions) == (2, "hello you")
        assert [status.version for status in versions.status()] == [2]
        # A request that the older version still works on.
        running = asyncio.ensure_future(versions.predict("slow", {"steps": np.array([10**9], np.int32)}))
        await until(lambda: versions.batcher.num_running)
        (tmp_path / "ten").rename(base / "10")
        await until(lambda: versions.current_version == 10)
        assert versions.status() == [VersionStatus(10, "AVAILABLE"), VersionStatus(2, "UNLOADING")]
        assert (await failure(versions, "", texts(b"a"), 2))[0] == "NOT_FOUND"
        assert not running.done()
        with pytest.raises(ServingError, match="longer than 3 seconds"):
            await running
        assert await greeting(versions) == (10, "good day you")
        await until(lambda: versions.status(2) == [VersionStatus(2, "END")])
        # Back to the older version when the newer one is taken away.
        (base / "10").rename(tmp_path / "away")
        await until(lambda: versions.current_version == 2)
        assert await greeting(versions) == (2, "hello you")
        # The last one stays.
        shutil.rmtree(base)
        await asyncio.sleep(0.1)
        assert await greeting(versions) == (2, "hello you")

    with_versions(test, base, timeout_seconds=3.0)


def test_no_request_is_lost_when_versions_change(toy, write_toy_model, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(toy / "7", base / "1")
    write_toy_model(tmp_path / "two", greeting="good day")

    async def test(versions):
        answers = []

        async def client():
            while len(answers) < 100 or answers[-1][0] == 1:
                answers.append(await greeting(versions))

        clients = asyncio.gather(*(client() for _ in range(4)))
        await until(lambda: len(answers) > 20)
        (tmp_path / "two").rename(base / "2")
        await clients
        assert set(answers) == {(1, "hello you"), (2, "good day you")}

    with_versions(test, base)


@pytest.mark.parametrize("fault", ["damaged", "warm-up"])
def test_a_version_that_cannot_be_loaded(toy, write_toy_model, tmp_path, fault, caplog):
    base = tmp_path / "base"
    shutil.copytree(toy / "7", base / "1")
    if fault == "damaged":
        shutil.copytree(toy / "7", tmp_path / "two")
        (tmp_path / "two/saved_model.pb").write_bytes(b"\xff" * 100)
    else:
        write_toy_model(tmp_path / "two", warm_up=[("picky", {"text": ["bad"]})])
    write_toy_model(tmp_path / "good", greeting="good day")

    async def test(versions):
        (tmp_path / "two").rename(base / "2")
        await until(lambda: len(versions.status()) == 2 and versions.status(2)[0].state == "END")
        assert versions.status(2)[0].code != "OK"
        assert ("Warm-up request 1" if fault == "warm-up" else "Cannot load") in versions.status(2)[0].message
        await asyncio.sleep(0.2)
        assert caplog.text.count("Version 2 of toy is not served") == 1  # not tried again
        assert await greeting(versions) == (1, "hello you")
        # But when it is written anew.
        shutil.rmtree(base / "2")
        (tmp_path / "good").rename(base / "2")
        await until(lambda: versions.current_version == 2)
        assert await greeting(versions) == (2, "good day you")

    with_versions(test, base)


def test_a_start_with_a_version_that_cannot_be_loaded(toy, tmp_path):
    base = tmp_path / "base"
    (base / "2").mkdir(parents=True)
    (base / "2/saved_model.pb").write_bytes(b"\xff" * 100)
    with pytest.raises(ServingError, match=f"Cannot load {base}/2"):
        with_versions(None, base)
    shutil.copytree(toy / "7", base / "1")

    async def test(versions):
        assert await greeting(versions) == (1, "hello you")
        assert [(status.version, status.state) for status in versions.status()] == [(2, "END"), (1, "AVAILABLE")]

    with_versions(test, base)


def test_a_stop_answers_what_has_arrived(toy):
    async def main():
        versions = ServedVersions("toy", toy, ServingOptions(max_batch_rows=1))
        await versions.start()
        tasks = [asyncio.ensure_future(versions.predict("greeting", texts(b"%d" % number))) for number in range(20)]
        await asyncio.sleep(0)
        await versions.stop()
        assert not versions.is_ready
        assert (await failure(versions, "", texts(b"a")))[0] == "UNAVAILABLE"
        return [(await task)[1]["greeting"][0] for task in tasks]

    assert asyncio.run(main()) == [b"hello %d" % number for number in range(20)]


def test_a_stop_gives_up_what_does_not_end(toy, caplog):
    async def main():
        versions = ServedVersions("toy", toy, ServingOptions(stop_seconds=0.1))
        await versions.start()
        task = asyncio.ensure_future(versions.predict("slow", ENDLESS))
        await until(lambda: versions.batcher.num_running)
        await versions.stop()
        with pytest.raises(ServingError) as caught:
            await task
        assert caught.value.code == "CANCELLED"

    asyncio.run(main())
    assert "Gave up requests that took longer than 0.1 seconds" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_rows": 0}, "`max_batch_rows` must be positive. Received: 0"),
        ({"timeout_seconds": float("nan")}, "`timeout_seconds` must be positive"),
        ({"timeout_seconds": 0.0}, "`timeout_seconds` must be positive"),
        ({"poll_seconds": -1.0}, "`poll_seconds` must be at least 0"),
        ({"port": 65536}, "`port` must be at most 65535"),
        ({"grpc_port": -1}, "`grpc_port` must be at least 0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        ServingOptions(**options)
