"""Two workers on this machine against one process."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.runs import hosts

SCRIPT = str(Path(__file__).with_name("host_process.py"))
SECONDS = 100


def start(request, index=None, ports=()):
    """Start one worker, or without an index one process on its own."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    if index is not None:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    return subprocess.Popen(
        [sys.executable, SCRIPT, json.dumps(request)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def running(requests):
    """One process for each request; several are workers of one cluster. None outlives the context."""
    ports = free_ports(len(requests))
    alone = len(requests) == 1
    processes = [start(request, None if alone else index, ports) for index, request in enumerate(requests)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def answers(requests):
    """What each process printed."""
    with running(requests) as processes:
        outputs = [process.communicate(timeout=SECONDS) for process in processes]
        for process, (_, errors) in zip(processes, outputs, strict=True):
            assert process.returncode == 0, errors[-3000:]
    printed = [output.splitlines() for output, _ in outputs]
    return [{**json.loads(lines[-1]), "printed": lines[:-1]} for lines in printed]


def training_request(folder, name, **arguments):
    return {"request": "train", "results": str(folder / f"{name}.npz"), **arguments}


def weights(folder, name):
    with np.load(folder / f"{name}.npz") as file:
        return [file[key] for key in file.files]


def difference(ours, others):
    return max(np.abs(one - other).max() for one, other in zip(ours, others, strict=True))


# === Training ===


@pytest.mark.slow
def test_two_hosts_give_the_numbers_of_one_process(tmp_path):
    (one,) = answers([training_request(tmp_path, "one", directory=str(tmp_path / "one"))])
    two = answers(
        [training_request(tmp_path, f"two-{i}", directory=str(tmp_path / f"worker-{i}")) for i in range(2)],
    )
    assert difference(weights(tmp_path, "two-0"), weights(tmp_path, "one")) < 1e-5
    assert difference(weights(tmp_path, "two-0"), weights(tmp_path, "two-1")) == 0
    for answer in two:
        assert set(answer["history"]) == set(one["history"])
        for name, values in one["history"].items():
            np.testing.assert_allclose(answer["history"][name], values, rtol=1e-5, err_msg=name)
        waits, begins, done = answer["printed"]
        assert "waits for all of: 127.0.0.1:" in waits
        assert begins.startswith("First step begins")
        assert done.startswith("First step done after")
    assert [answer["chief"] for answer in two] == [True, False]
    # Each had a folder of its own here: only the chief has written.
    assert (tmp_path / "worker-0" / "description.json").exists()
    assert not (tmp_path / "worker-1").exists()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Weights and logs of two workers, with dropout, that nothing has happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    requests = [training_request(folder, str(i), directory=str(folder / "run"), dropout=0.1) for i in range(2)]
    return weights_and_history(folder, answers(requests))


def weights_and_history(folder, workers):
    assert workers[0]["history"] == workers[1]["history"]
    assert difference(weights(folder, "0"), weights(folder, "1")) == 0
    return weights(folder, "0"), workers[0]["history"]


def resume(folder, requests, step, expected):
    """Start both again within the second epoch; compare the weights at the end and the log of that epoch."""
    workers = answers(requests)
    assert [worker["started_at"] for worker in workers] == [step, step]
    ours, history = weights_and_history(folder, workers)
    assert difference(ours, expected[0]) == 0
    for name, values in expected[1].items():
        np.testing.assert_allclose(history[name], values[1:], rtol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_killed_workers_resume_to_the_same_weights(tmp_path, uninterrupted, killed):
    requests = [training_request(tmp_path, str(i), directory=str(tmp_path / "run"), dropout=0.1) for i in range(2)]
    requests[killed]["signal_at"] = ["SIGKILL", 7]
    with running(requests) as processes:
        processes[killed].communicate(timeout=SECONDS)
        assert processes[killed].returncode == -signal.SIGKILL
        # The other one cannot go on. It must not wait for ever, nor end as if it were done.
        other = processes[1 - killed]
        _, errors = other.communicate(timeout=SECONDS)
        assert other.returncode == 1
        assert "UnavailableError" in errors
    assert not list(tmp_path.glob("*.npz"))
    del requests[killed]["signal_at"]
    resume(tmp_path, requests, 6, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 7])  # several batches of the epoch are left, or one
def test_a_signal_to_one_worker_stops_both(tmp_path, uninterrupted, step):
    requests = [training_request(tmp_path, str(i), directory=str(tmp_path / "run"), dropout=0.1) for i in range(2)]
    requests[1]["signal_at"] = ["SIGTERM", step]
    for answer in answers(requests):
        assert (answer["signal"], answer["stopped_at"]) == ("SIGTERM", step)
    del requests[1]["signal_at"]
    resume(tmp_path, requests, step, uninterrupted)


@pytest.mark.slow
def test_workers_wait_for_the_chief_and_find_out_that_they_differ(tmp_path):
    request = {"request": "agree"}
    chief, other = answers([{**request, "ours": {"hash": "a"}}, {**request, "ours": {"hash": "b"}}])
    assert other["marks"][0] >= chief["marks"][1]
    assert "data={'hash': 'a'}" in chief["error"]
    assert "data={'hash': 'b'}" in other["error"]
    assert "step" not in other["error"].partition("Received")[2]
    assert chief["logs"] == other["logs"] == {"loss": 1.0, "val_bleu": 30.1}
    assert "worker 0 (chief) of 2 workers (127.0.0.1:" in chief["line"]
    assert "worker 1 of 2 workers" in other["line"]
    assert "2 replicas in all" in other["line"]
    assert other["line"].endswith("CPU:0; gradients are added up by CollectiveAllReduce (RING)")
    assert chief["line"].endswith("CPU:0; gradients are added up by CollectiveAllReduce (RING)")


# === Without other processes ===


@pytest.mark.parametrize("num_rows", [1, 4, 5, 8, 9])
def test_every_row_goes_to_one_replica(num_rows):
    batches = [({"ids": np.arange(num_rows * 3).reshape(num_rows, 3) + 100 * i}, np.arange(num_rows)) for i in range(3)]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches),
        output_signature=({"ids": tf.TensorSpec([None, 3], "int64")}, tf.TensorSpec([None], "int64")),
    )
    parts = []  # of each worker, for one batch after the other those of its two replicas
    for worker in range(2):
        context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=worker, num_replicas_in_sync=4)
        parts.append(list(hosts.rows_of_worker(dataset, context).as_numpy_iterator()))
    for i, (x, y) in enumerate(batches):
        four = [*parts[0][2 * i : 2 * i + 2], *parts[1][2 * i : 2 * i + 2]]
        np.testing.assert_array_equal(np.concatenate([part[0]["ids"] for part in four]), x["ids"])
        np.testing.assert_array_equal(np.concatenate([part[1] for part in four]), y)
        assert max(len(part[1]) for part in four) == int(np.ceil(num_rows / 4))
    assert [len(of_worker) for of_worker in parts] == [6, 6]


@pytest.mark.parametrize(
    ("num_replicas", "cardinality", "expected"),
    [(2, 5, 5), (2, tf.data.INFINITE_CARDINALITY, tf.data.INFINITE_CARDINALITY), (4, 5, tf.data.UNKNOWN_CARDINALITY)],
)
def test_number_of_steps(num_replicas, cardinality, expected):
    dataset = tf.data.Dataset.from_tensors(np.zeros((4, 2))).repeat(None if cardinality < 0 else cardinality)
    context = tf.distribute.InputContext(2, 1, num_replicas)
    assert hosts.rows_of_worker(dataset, context).cardinality() == expected


def test_one_process_needs_nothing():
    strategy = tf.distribute.get_strategy()
    dataset = tf.data.Dataset.range(3)
    assert hosts.share_rows(dataset, strategy) is dataset
    assert hosts.is_chief(strategy)
    hosts.check_same(strategy, step=3)
    with hosts.chief_first(strategy):
        pass
    assert "one replica, on /device:" in hosts.describe(strategy)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "first"}}',
    ],
)
def test_bad_cluster(monkeypatch, text):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG must hold the addresses"):
        hosts.connect()


def test_bad_reduction():
    with pytest.raises(ValueError, match="`reduction` must be one of auto, nccl, hierarchical-copy, one-device here"):
        hosts.replicate(reduction="ring")
    with pytest.raises(ValueError, match="`reduction` must be one of auto, nccl, ring here"):
        hosts.connect(reduction="one-device")
    with pytest.raises(ValueError, match="`reduction` must not be nccl unless all devices are GPUs"):
        hosts.replicate(["CPU:0", "CPU:1"], reduction="nccl")


@pytest.fixture
def first_step():
    """The callback before the first step of a model, with little patience."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = hosts.FirstStepTime(patience=0.2)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_train_batch_begin(0)
    return callback


def test_a_first_step_that_takes_long(first_step, capfd):
    time.sleep(0.5)
    first_step.on_train_batch_begin(1)
    hint, done = capfd.readouterr().out.splitlines()[-2:]
    assert hint.startswith("First step not done after 0.2 s.")
    assert done.startswith("First step done after 0.")


@pytest.mark.parametrize("end", ["on_train_batch_begin", "on_train_end"])
def test_a_first_step_in_time(first_step, capfd, end):
    getattr(first_step, end)(*([1] if end == "on_train_batch_begin" else []))
    time.sleep(0.5)
    assert "First step not done" not in capfd.readouterr().out
