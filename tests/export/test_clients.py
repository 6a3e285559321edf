"""The clients, as whoever serves starts them, against the local server; and against servers that answer otherwise."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.server.grpc_server import GrpcServer
from keras_transformer.server.http_server import HttpServer
from keras_transformer.server.options import ServingOptions
from keras_transformer.server.versions import ServedVersions

FOLDER = Path(__file__).parents[2] / "export"
TEXT = [tf.TensorSpec([None], tf.string, name="text")]


class Shouter(tf.Module):
    """A translator's outputs by rules that can be read: capitals, cut at 30 characters, finished up to 20."""

    def best(self, text):
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        length = tf.strings.length(text, "UTF8_CHAR")
        return {
            "translation": tf.strings.upper(tf.strings.substr(text, 0, 30, "UTF8_CHAR"), encoding="utf-8"),
            "score": -tf.cast(length, tf.float32) / 2,
            "log_probability": -tf.cast(length, tf.float32),
            "finished": length <= 20,
            "truncated": length > 30,
        }

    @tf.function(input_signature=TEXT)
    def serving_default(self, text):
        return self.best(text)

    @tf.function(input_signature=TEXT)
    def n_best(self, text):
        """Of three places two are filled, of a blank row one. The second is never finished."""
        best = self.best(text)
        is_blank = text == ""

        def places(first, second, nothing):
            rest = tf.fill(tf.shape(text), nothing)
            return tf.stack([first, tf.where(is_blank, rest, second), rest], axis=1)

        scores, sums = best["score"], best["log_probability"]
        return {
            "translations": places(best["translation"], best["translation"] + "!", ""),
            "scores": places(scores, scores - 1, tf.float32.min),
            "log_probabilities": places(sums, sums - 1, tf.float32.min),
            "finished": places(best["finished"], tf.zeros_like(is_blank), False),
            "num_translations": tf.where(is_blank, 1, 2),
            "truncated": best["truncated"],
        }

    @tf.function(input_signature=TEXT)
    def two_lines(self, text):
        return {**self.best(text), "translation": tf.strings.join([text, "\u2028", text, "\r\n"])}

    @tf.function(input_signature=TEXT)
    def no_translation(self, text):
        return {"length": tf.strings.length(text), "blank": text == ""}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Addresses of the local server, with a small model named en-de."""
    directory = tmp_path_factory.mktemp("served") / "en-de"
    module = Shouter()
    names = ("serving_default", "n_best", "two_lines", "no_translation")
    tf.saved_model.save(module, str(directory / "1"), signatures={name: getattr(module, name) for name in names})
    ready, addresses = threading.Event(), SimpleNamespace(loop=asyncio.new_event_loop(), stop=asyncio.Event())

    async def serve():
        versions = ServedVersions("en-de", directory, ServingOptions(port=0, max_string_bytes=1000))
        http, grpc = HttpServer(versions), GrpcServer(versions, port=0)
        await asyncio.gather(versions.start(), http.start())
        await grpc.start()
        addresses.rest, addresses.grpc = http.address, f"127.0.0.1:{grpc.port}"
        ready.set()
        await addresses.stop.wait()
        await asyncio.gather(http.stop(), grpc.stop())
        await versions.stop()

    thread = threading.Thread(target=addresses.loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(300)
    yield addresses
    addresses.loop.call_soon_threadsafe(addresses.stop.set)
    thread.join(300)
    addresses.loop.close()


@pytest.fixture(params=["rest", "grpc"])
def client(request, servers):
    """Function that runs a client: what it writes, its messages by line, and its exit status."""
    # -I and -S leave Python alone with its standard library.
    isolated, option = (["-I", "-S"], "--url") if request.param == "rest" else ([], "--address")
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}

    here = getattr(servers, request.param)

    def run(*arguments, lines=b"", address=here):
        done = subprocess.run(
            [
                *(sys.executable, *isolated, "-W", "error", FOLDER / f"client_{request.param}.py"),
                *(option, address, *arguments),
            ],
            input=lines,
            capture_output=True,
            env={**environment, "PYTHONIOENCODING": "ascii"},
            timeout=300,
        )
        return done.stdout.decode("utf-8"), done.stderr.decode("utf-8").splitlines(), done.returncode

    run.protocol = request.param
    return run


@pytest.mark.parametrize("batch_size", [[], ["--batch-size", "7"], ["--batch-size", "1000"]])
def test_lines_in_order(client, batch_size):
    texts = [f"line {number}ü" for number in range(70)]
    texts[3], texts[40] = "", " "
    written, messages, status = client(*batch_size, lines="\n".join(texts).encode())
    assert written.splitlines() == [text.upper() for text in texts]
    assert (messages, status) == ([], 0)


def test_any_bytes(client):
    lines = b"a\xffb\r\n\nc\x01\n\xc3\xa4\n{}\"'\\"
    assert client(lines=lines) == ("A\ufffdB\n\nC\x01\nÄ\n{}\"'\\\n", [], 0)
    assert client("--signature", "two_lines", lines=b"\x00\n") == ("\x00 \x00\n", [], 0)


def test_a_byte_order_mark_is_no_text(client):
    mark = b"\xef\xbb\xbf"
    assert client(lines=mark + b"a\n" + mark + b"b\n") == ("A\n\ufeffB\n", [], 0)


def test_arguments_instead_of_lines(client):
    assert client("one", "", "zwölf", b"\xff", lines=b"not read") == ("ONE\n\nZWÖLF\n\ufffd\n", [], 0)


def test_nothing_in_nothing_out(client):
    assert client(lines=b"") == ("", [], 0)


def test_says_which_lines_were_cut(client):
    lines = [b"short", b"x" * 21, b"x" * 31, b"short"]
    written, messages, status = client("--batch-size", "2", lines=b"\n".join(lines))
    assert written == f"SHORT\n{'X' * 21}\n{'X' * 30}\nSHORT\n"
    assert status == 0
    assert messages == [
        "line 2: the translation was cut at the limit on its length",
        "line 3: too long for the model, cut before it was translated",
        "line 3: the translation was cut at the limit on its length",
    ]


def test_n_best(client):
    written, messages, status = client("--n-best", "5", lines=b"abcd\n\n|||x\n")
    assert written.splitlines() == [
        "0 ||| ABCD ||| log_probability= -4.000000 ||| -2.000000",
        "0 ||| ABCD! ||| log_probability= -5.000000 ||| -3.000000",
        "1 |||  ||| log_probability= -0.000000 ||| -0.000000",
        "2 ||| |||X ||| log_probability= -4.000000 ||| -2.000000",
        "2 ||| |||X! ||| log_probability= -5.000000 ||| -3.000000",
    ]
    limit = "the translation was cut at the limit on its length"
    assert messages == [f"line 1: {limit}", f"line 3: {limit}"]
    assert status == 0


def test_a_translation_that_is_not_written_is_not_reported(client):
    written, messages, _ = client("--signature", "n_best", lines=b"abcd")
    assert written == "0 ||| ABCD ||| log_probability= -4.000000 ||| -2.000000\n"
    assert messages == []


def test_a_translation_stays_on_its_line(client):
    assert client("--signature", "two_lines", lines=b"a\nb") == ("a a\nb b\n", [], 0)


def test_version(client):
    assert client("--version", "1", "one") == ("ONE\n", [], 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "de-en/x y"], "Servable not found for request: Latest(de-en/x y)"),
        (["--version", "2"], "Servable not found for request: Specific(en-de, 2)"),
        (["--signature", "none"], "none"),
        (["--signature", "no_translation"], "no translations in the answer"),
    ],
)
def test_errors_of_the_server(client, arguments, message):
    written, messages, status = client(*arguments, "one", "two")
    assert (written, status) == ("", 1)
    assert len(messages) == 1
    assert messages[0].startswith("lines 1 to 2: ")
    assert message in messages[0]


def test_what_came_before_an_error_is_written(client):
    written, messages, status = client("--batch-size", "1", lines=b"one\n" + b"x" * 1001 + b"\nthree")
    assert (written, status) == ("ONE\n", 1)
    (message,) = messages
    assert message.startswith("lines 2 to 2: ")
    assert "at most 1000 bytes" in message


def test_no_server(client):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        written, messages, status = client("one", address="http://" * (client.protocol == "rest") + address)
    assert (written, status) == ("", 3)
    assert messages[-1].startswith("lines 1 to 1: ")
    assert "Connection refused" in messages[-1]


def test_a_server_that_does_not_answer(client):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        prefix = "http://" if client.protocol == "rest" else ""
        written, messages, status = client("--timeout", "1", "one", address=prefix + address)
    assert (written, status) == ("", 3)
    assert messages[-1].startswith("lines 1 to 1: ")


@pytest.mark.parametrize("arguments", [["--n-best", "0"], ["--batch-size", "0"], ["--timeout", "-1"], ["--versoin"]])
def test_wrong_arguments(client, arguments):
    written, messages, status = client(*arguments, lines=b"one")
    assert (written, status) == ("", 2)
    assert "error" in messages[-1]


@pytest.mark.parametrize("body", [b"hello", b"[]", b'{"outputs": []}', b'{"outputs": {"translation": ["one"]}}'])
@pytest.mark.parametrize("client", ["rest"], indirect=True)
def test_another_kind_of_server(client, body):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        written, messages, status = client("one", "two", address=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join(300)
    assert (written, status) == ("", 1)
    assert len(messages) == 1
    assert messages[0].startswith("lines 1 to 2: no translations in the answer")


@pytest.mark.parametrize("name", ["client_rest.py", "client_grpc.py"])
def test_clients_are_short(name):
    assert len((FOLDER / name).read_text("utf-8").splitlines()) < 80


def test_client_grpc_does_not_load_tensorflow():
    program = (
        "import runpy, sys\n"
        "sys.argv = ['client', '--help']\n"
        "try:\n"
        f"    runpy.run_path({str(FOLDER / 'client_grpc.py')!r}, run_name='__main__')\n"
        "except SystemExit:\n"
        "    loaded = {name for name in sys.modules if name.startswith('tensorflow.python')}\n"
        "    print(loaded, 'keras' in sys.modules, 'keras_transformer' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == b"set() False False"
