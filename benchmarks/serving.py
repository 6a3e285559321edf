"""Load on the local server: how many sentences a second, and how long each takes, next to calling the model itself.

    python benchmarks/serving.py                                       a small random model (about five minutes)
    python benchmarks/serving.py --quick                               fewer cases, shorter (about a minute)
    python benchmarks/serving.py --export served/en-de --text FILE     a trained model on real sentences

Clients are threads of this process that send one sentence at a time, each over a connection of its own that stays
open, and wait for the answer before they send the next. "batching" is the server as it comes: what waits while the
model is busy runs together. "no batching" is `--max-batch-rows 1`. "in process" calls the signature of the same
export, by the loader and session that the server uses, without a server. Everything is on this machine, over loopback.
A ratio above 1 means that the server answers more sentences a second than one caller in process.

Also the first request after loading, with and without the requests that warm an export up.
"""

import contextlib
import dataclasses
import http.client
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))  # the built-in corpus

import grpc
import numpy as np
import tyro
from builtin_corpus.corpus import BuiltinCorpus
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import BeamSearch
from keras_transformer.saved_model.writer import write_saved_model
from keras_transformer.server.servable import Servable
from keras_transformer.transformer import Transformer
from keras_transformer.translation.translator import Translator

NAME = "model"
# Distinct sentences that the clients send, in turns.
NUM_SENTENCES = 64
# Tokens of each translation of the random model, which never ends by itself.
NUM_TOKENS = 16
# Bounds on what a case may take, whatever the server does.
MAX_REQUESTS = 20_000
TIMEOUT = 120


@dataclasses.dataclass
class Config:
    """Time the local server."""

    quick: bool = False
    """1 and 16 clients only, and a third of the time."""
    json: Path | None = None
    """File for the results, a list of records."""
    export: Path | None = None
    """Version folder of an export; with --text. Default: a random model of the size "tiny", beam 4, 16 tokens out."""
    text: Path | None = None
    """File of sentences, one a line; the first 64 that differ are sent."""
    clients: tuple[int, ...] = (1, 4, 16)
    """Numbers of clients."""
    seconds: float = 10.0
    """Length of each measurement."""


def main(config):
    with tempfile.TemporaryDirectory() as directory:
        if config.export is None:
            path, sentences = random_model(Path(directory) / NAME / "1")
        else:
            lines = config.text.read_text("utf-8").splitlines()
            path, sentences = config.export, list(dict.fromkeys(line for line in lines if line.strip()))
        sentences = sentences[:NUM_SENTENCES]
        records = [*first_request(path, sentences), *load(config, path, sentences)]
    if config.json is not None:
        config.json.write_text(json.dumps({"machine": machine(), "records": records}, indent=2) + "\n", "utf-8")
    return records


def random_model(path):
    pairs = list(BuiltinCorpus("train", num_pairs=2000))
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], vocabulary_size=2000)
    model = Transformer.from_preset("tiny", tokenizer.vocabulary_size)
    search = BeamSearch(min_length=NUM_TOKENS)
    translator = Translator(model, tokenizer, search=search, max_target_tokens=NUM_TOKENS)
    write_saved_model(translator, path, signatures=["serving_default"])
    return path, [source for source, _ in pairs]


# === In process ===


@contextlib.contextmanager
def in_process(path):
    """Function of sentences to their translations, in bytes, by one call of the signature."""
    servable = Servable(path)

    def translate(sentences):
        inputs = {"text": np.array([sentence.encode() for sentence in sentences], object)}
        return servable.run("serving_default", inputs)["translation"].tolist()

    yield translate
    servable.close()


@contextlib.contextmanager
def one_by_one(translate):
    """A client that needs no server."""
    yield lambda sentence: translate([sentence])[0]


def first_request(path, sentences):
    """Seconds of the first and the second request, in processes of their own."""
    records = []
    for how in ("cold", "warmed up"):
        done = subprocess.run(
            [sys.executable, __file__, "--measure-first", str(path), how, sentences[0]],
            capture_output=True,
            text=True,
            check=True,
        )
        warm_up, first, second = map(float, done.stdout.split()[-3:])
        print(
            f"{how:12} first request {first * 1e3:8.1f} ms, second {second * 1e3:8.1f} ms, warm-up {warm_up:5.2f} s",
            flush=True,
        )
        records.append(
            {
                "name": f"first request, {how}",
                "case": "one sentence",
                "ours": first,
                "peer": second,
                "unit": "s",
                "ratio": second / first,
                "warm_up_seconds": warm_up,
            }
        )
    return records


def measure_first(path, how, sentence):
    servable = Servable(path)
    start = time.perf_counter()
    if how == "warmed up":
        servable.warm_up()
    times = [time.perf_counter()]
    for _ in range(2):
        servable.run("serving_default", {"text": np.array([sentence.encode()], object)})
        times.append(time.perf_counter())
    print(times[0] - start, times[1] - times[0], times[2] - times[1])


# === A server under load ===


@contextlib.contextmanager
def server(path, *options):
    """A server in a process of its own; gives its ports of HTTP and gRPC."""
    ports = free_port(), free_port()
    addresses = ["--port", str(ports[0]), "--grpc-port", str(ports[1])]
    command = [sys.executable, "-m", "keras_transformer", "serve", "--export", str(path), "--name", NAME]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, *addresses, *options], stdout=log, stderr=log)
        try:
            for _ in range(10 * TIMEOUT):
                if process.poll() is not None or (all(map(is_open, ports)) and is_healthy(ports[0])):
                    break
                time.sleep(0.1)
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"The server ended: {log.read().decode('utf-8', 'replace')}")
            yield ports
        finally:
            process.terminate()
            process.wait(TIMEOUT)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def is_open(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def is_healthy(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200


@contextlib.contextmanager
def rest_client(port):
    """Function of a sentence to its translation, in bytes."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:

        def translate(sentence):
            body = json.dumps({"inputs": {"text": [sentence]}}).encode()
            connection.request("POST", f"/v1/models/{NAME}:predict", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {answer}")
            return answer["outputs"]["translation"][0].encode()

        yield translate


@contextlib.contextmanager
def grpc_client(port):
    """Function of a sentence to its translation, in bytes."""
    # Else the channels of a process to one address share a connection.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def translate(sentence):
            request = predict_pb2.PredictRequest(model_spec={"name": NAME})
            tensor = {"dtype": 7, "tensor_shape": {"dim": [{"size": 1}]}, "string_val": [sentence.encode()]}
            request.MergeFrom(predict_pb2.PredictRequest(inputs={"text": tensor}))
            return stub.Predict(request, timeout=TIMEOUT).outputs["translation"].string_val[0]

        yield translate


def drive(make_client, num_clients, sentences, expected, seconds):
    """Seconds of each answer, of all clients; how many were as expected; and seconds in all."""
    times = [[] for _ in range(num_clients)]
    errors = []
    num_right = [0] * num_clients
    barrier = threading.Barrier(num_clients + 1)

    def work(number):
        try:
            with make_client() as translate:
                translate(sentences[number % len(sentences)])  # opens the connection
                barrier.wait(TIMEOUT)
                end = time.perf_counter() + seconds
                start = time.perf_counter()
                while start < end and len(times[number]) < MAX_REQUESTS // num_clients:
                    sentence = sentences[(number * 7 + len(times[number])) % len(sentences)]
                    num_right[number] += translate(sentence) == expected[sentence]
                    now = time.perf_counter()
                    times[number].append(now - start)
                    start = now
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=[number]) for number in range(num_clients)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait(TIMEOUT)
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(f"{len(errors)} of {num_clients} clients failed") from errors[0]
    return [one for of_client in times for one in of_client], sum(num_right), time.perf_counter() - start


def load(config, path, sentences):
    seconds = config.seconds / 3 if config.quick else config.seconds
    clients = [number for number in config.clients if not config.quick or number in (1, 16)]
    records = []
    with (
        in_process(path) as translate,
        server(path) as batching,
        server(path, "--max-batch-rows", "1") as no_batching,
    ):
        expected = dict(zip(sentences, translate(sentences), strict=True))
        systems = {
            "REST, batching": lambda: rest_client(batching[0]),
            "REST, no batching": lambda: rest_client(no_batching[0]),
            "gRPC, batching": lambda: grpc_client(batching[1]),
            "gRPC, no batching": lambda: grpc_client(no_batching[1]),
        }
        for num_clients in clients:
            print(f"\n{num_clients} {'clients' if num_clients > 1 else 'client'}")
            times, _, wall = drive(lambda: one_by_one(translate), 1, sentences, expected, seconds)
            in_turn = len(times) / wall
            report("in process", times, in_turn)
            for name, make_client in systems.items():
                times, num_right, wall = drive(make_client, num_clients, sentences, expected, seconds)
                rate = len(times) / wall
                report(name, times, rate, f"{num_right / len(times):6.1%} as in process")
                records.append(
                    {
                        "name": f"serving {name} / in process",
                        "case": f"{num_clients} clients",
                        "ours": rate,
                        "peer": in_turn,
                        "unit": "sentences/s",
                        "ratio": rate / in_turn,
                        "p50_ms": float(np.percentile(times, 50)) * 1e3,
                        "p99_ms": float(np.percentile(times, 99)) * 1e3,
                        "requests": len(times),
                        "as_in_process": num_right / len(times),
                    }
                )
        start = time.perf_counter()
        translate(sentences)
        rate = len(sentences) / (time.perf_counter() - start)
        print(f"\nin process, {len(sentences)} in one call: {rate:.1f} sentences/s")
    return records


def report(name, times, rate, more=""):
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    print(f"  {name:20} {rate:8.1f} sentences/s   p50 {p50:8.1f} ms   p99 {p99:8.1f} ms   {more}", flush=True)


def machine():
    """What the figures were measured with."""
    packages = ("tensorflow", "keras", "aiohttp", "grpcio")
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure-first"]:
        measure_first(*sys.argv[2:])
    else:
        main(tyro.cli(Config, description=__doc__))
