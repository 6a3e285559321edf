"""The command: options in this process; start, answers and ends in processes of their own."""

import dataclasses
import importlib.util
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer.__main__ import main
from keras_transformer.commands.serve import Serve
from keras_transformer.server.options import ServingOptions

# Seconds that nothing here should take: a safety net.
PATIENCE = 300


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A base folder of one version, with one signature that shouts and one that counts."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def shout(text):
        return {"loud": tf.strings.upper(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "steps")])
    def count(steps):
        most = tf.reduce_max(steps)
        done = tf.while_loop(lambda step: step < most, lambda step: [step + 1], [tf.constant(0)])[0]
        return {"steps": steps + 0 * done}

    base = tmp_path_factory.mktemp("models") / "loud ü"
    tf.saved_model.save(tf.Module(), str(base / "3"), signatures={"serving_default": shout, "count": count})
    return base


# === Options ===


def test_defaults_have_one_home_and_are_stated_as_they_are(capsys):
    homes = {field.name: field.default for field in dataclasses.fields(ServingOptions)}
    own = {field.name: field.default for field in dataclasses.fields(Serve)}
    assert own.keys() - homes.keys() == {"export", "name"}
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    stated = dict(re.findall(r"--([a-z-]+) (?:(?!--).)*?\(default: (\S+)\)", help_text(capsys), re.S))
    assert stated == {name.replace("_", "-"): str(default) for name, default in homes.items() if default is not None}
    assert len(stated) == 14
    assert not homes["access_log"]


def help_text(capsys):
    """What was printed, without frames and line ends."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_options_reach_the_server(export):
    given = {
        field.name: True if field.name == "access_log" else "::1" if field.name == "host" else 1 + number
        for number, field in enumerate(dataclasses.fields(ServingOptions))
    }
    name, options = Serve(export=export, name="x", **given).check()
    assert name == "x"
    assert dataclasses.asdict(options) == given
    assert Serve(export=export).check() == ("loud ü", ServingOptions())


def test_name(export, monkeypatch):
    assert Serve(export=export / "3").check()[0] == "loud ü"
    monkeypatch.chdir(export)
    for path in (".", "3", "3/..", "./3/"):
        assert Serve(export=Path(path)).check()[0] == "loud ü"


def test_a_run_serves_its_exports(export, tmp_path):
    assert Serve(export=export).directory == export
    run = tmp_path / "en-de"
    (run / "checkpoints").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"must hold an export.*Received: {run}, a run that has none"):
        Serve(export=run).check()
    (run / "export").symlink_to(export)
    assert Serve(export=run).check()[0] == "en-de"
    assert Serve(export=run).directory == run / "export"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "`port` must be at most 65535. Received: 70000"),
        (["--max-batch-rows", "0"], "`max_batch_rows` must be positive. Received: 0"),
        (["--timeout-seconds", "-1"], "`timeout_seconds` must be positive"),
        (["--name", "a/b"], "`--name` must be printable, without any of"),
        (["--name", ""], "`--name` must be printable"),
        (["--export", "NOTHING"], "`--export` must be a folder. Received: NOTHING"),
    ],
)
def test_errors(export, options, message):
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--export", str(export), *options])
    assert stopped.value.code.startswith("keras-transformer: error: ")
    assert message in stopped.value.code


def test_missing_packages(export, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "aiohttp" else find(name))
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--export", str(export)])
    assert stopped.value.code == (
        "keras-transformer: error: `serve` needs aiohttp: pip install 'keras-transformer-translation[serve]'"
    )


# === Processes ===


class Process:
    """A `serve` process; `lines` are those of its own on standard error."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "keras_transformer", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines, self._changed = [], threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                if line.startswith(("keras-transformer: ", "Traceback")):
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()

    def wait_for(self, pattern, seconds=PATIENCE):
        """The match in a line that has come or comes."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines:
                    if match := re.search(pattern, line):
                        return match
                assert self.process.poll() is None, self.lines
                assert self._changed.wait(max(0, end - time.monotonic())), self.lines

    def url(self):
        return self.wait_for(r"Serving .* at (http://\S+)/$")[1]

    def end(self, number=signal.SIGTERM):
        """Exit status after a signal."""
        self.process.send_signal(number)
        status = self.process.wait(timeout=PATIENCE)
        self._reader.join()
        return status


def predict(url, document):
    request = urllib.request.Request(f"{url}/v1/models/loud%20%C3%BC:predict", json.dumps(document).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def check_stop(server, url, number):
    """After a signal it ends when what had arrived is answered, and without a word that is not its own."""
    slow = {"signature_name": "count", "instances": [300000]}
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(predict, url, slow) for _ in range(3)]
        while metric(url, "requests_in_flight") < 3:
            time.sleep(0.01)
        assert server.end(number) == 0
        assert [answer.result() for answer in answers] == [{"predictions": [300000]}] * 3
    assert server.process.stdout.read() == ""
    assert server.lines[-1] == "keras-transformer: Stopping when what has arrived is answered"
    assert not [line for line in server.lines if "Traceback" in line]


def test_serve_and_stop(export):
    with Process("--export", export, "--max-batch-rows", "1") as server:
        url = server.url()
        assert url.startswith("http://127.0.0.1:")
        assert server.lines[0] == f"keras-transformer: Loading {export}; {url}/healthz says when it is done"
        assert predict(url, {"instances": ["a"]}) == {"predictions": ["A"]}
        check_stop(server, url, signal.SIGTERM)


def metric(url, name):
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        return float(re.search(rf"(?m)^keras_transformer_{name} (\S+)$", answer.read().decode())[1])


def test_access_log_grpc_and_a_second_signal(export):
    with Process("--export", export, "--access-log", "--grpc-port", "0") as server:
        url = server.url()
        port = int(server.wait_for(r"gRPC at port (\d+)$")[1])
        socket.create_connection(("127.0.0.1", port)).close()
        endless = {"signature_name": "count", "instances": [2**31 - 1]}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(predict, url, endless)
            while metric(url, "runs_in_flight") < 1:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGINT)
            server.wait_for("Stopping")
            assert server.end(signal.SIGINT) == 128 + signal.SIGINT
            assert answer.exception() is not None
        lines = [json.loads(line) for line in server.process.stdout]
        assert {(line["path"], line["status"]) for line in lines} == {("/metrics", 200)}


def test_a_stop_while_it_loads(export):
    with Process("--export", export) as server:
        server.wait_for("Loading")
        assert server.end() == 0
        assert not [line for line in server.lines if "Traceback" in line]


def test_newer_versions(export, tmp_path):
    base = tmp_path / "loud ü"
    shutil.copytree(export, base)
    with Process("--export", base, "--poll-seconds", "0.1", "--max-batch-rows", "1") as server:
        url = server.url()
        shutil.copytree(export / "3", tmp_path / "new")
        (tmp_path / "new").rename(base / "4")
        server.wait_for("Version 4 of loud ü is served$")
        (base / "5").mkdir()
        (base / "5/saved_model.pb").write_bytes(b"\xff" * 100)
        server.wait_for("Version 5 of loud ü is not served: Cannot load")
        assert predict(url, {"instances": ["a"]}) == {"predictions": ["A"]}
        assert metric(url, "model_version") == 4
        check_stop(server, url, signal.SIGINT)


def test_a_start_that_fails(export, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Process("--export", export, "--port", port) as first, Process("--export", tmp_path) as second:
            for server, message in (
                (first, "address already in use"),
                (second, r"must be a version of the model \(N/saved_model.pb\) in"),
            ):
                assert server.process.wait(timeout=PATIENCE) == 1
                server._reader.join()
                assert re.search(f"^keras-transformer: error: .*{message}", server.lines[-1]), server.lines
                assert not [line for line in server.lines if "Traceback" in line]
