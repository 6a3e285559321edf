"""Clients that come all at once, leave, or send anything but a request: each gets its own, the server stays."""

import base64
import gc
import json
import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ENDLESS = {"signature_name": "slow", "instances": [2**31 - 1]}
PREDICT = "/v1/models/toy:predict"


# === Many clients ===


def test_each_client_gets_its_own_answers(server):
    """16 clients x 50 distinct requests, in different orders, of different sizes and signatures."""
    requests = {}
    for client in range(16):
        for number in range(50):
            texts = [f"{'ab' * (number % 7)} {client} {number} {row}" for row in range(1 + number % 3)]
            name = ("letters", "greeting", "picky")[number % 3]
            texts = ["bad"] if name == "picky" and number % 10 == 8 else texts
            requests[client, number] = {"signature_name": name, "instances": texts}

    def expected(document):
        texts, name = document["instances"], document["signature_name"]
        if name == "letters":
            return 200, texts
        if name == "greeting":
            return 200, [f"hello {text}" for text in texts]
        return (400, None) if texts == ["bad"] else (200, texts)

    def run(client):
        order = [number for one, number in requests if one == client]
        random.Random(client).shuffle(order)
        connection = server.connect()
        wrong = []
        for number in order:
            document = requests[client, number]
            status, answer = server.predict(document, connection=connection)
            values = answer.get("predictions")
            if document["signature_name"] == "letters":
                values = ["".join(row["characters"]) for row in values]
            if (status, values) != expected(document):
                wrong.append((document, status, answer))
        connection.close()
        return wrong

    before = server.metric("run_requests_count")
    with ThreadPoolExecutor(16) as pool:
        assert [wrong for wrongs in pool.map(run, range(16)) for wrong in wrongs] == []
    assert server.metric("run_requests_count") - before < 800, "nothing was batched"
    assert server.versions.num_in_flight == 0


def test_a_client_that_leaves_does_not_disturb_others(server):
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        body = json.dumps({"signature_name": "slow", "instances": [10**5]}).encode()
        leaving.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PREDICT.encode(), len(body)))
        leaving.sendall(body)
        server.wait_until(lambda: server.versions.batcher.num_running)
    assert server.predict({"signature_name": "slow", "instances": [3]}) == (200, {"predictions": [3]})
    server.wait_until(lambda: server.versions.num_in_flight == 0)


def test_full_queue_and_time_limit(make_server, toy):
    server = make_server(toy, timeout_seconds=2.0, max_queue_length=1, max_batch_rows=1)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(server.predict, ENDLESS)
        server.wait_until(lambda: server.versions.batcher.num_running)
        waiting = pool.submit(server.predict, {"instances": ["a"]})
        server.wait_until(lambda: server.versions.batcher.queue_length)
        status, headers, body = server.request("POST", PREDICT, b'{"instances": ["b"]}')
        assert (status, headers["Retry-After"]) == (503, "1")
        assert json.loads(body) == {"error": "The queue of waiting requests is full."}
        late = (504, {"error": "The request took longer than 2 seconds."})
        assert running.result() == late
        assert waiting.result() == late or waiting.result()[0] == 200
    assert server.predict({"instances": ["a"]})[0] == 200
    server.stop()


# === Hostile clients ===


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_any_body(server, body):
    status, answer = server.predict(body)
    assert status == 400
    assert answer.keys() == {"error"}


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_any_bytes_as_text(server, texts):
    instances = [{"b64": base64.b64encode(text).decode()} for text in texts]
    status, answer = server.predict({"instances": instances})
    assert status == 200
    assert [row["raw_bytes"] for row in answer["predictions"]] == instances
    assert [row["length"] for row in answer["predictions"]] == [len(text) for text in texts]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"POST "
        + PREDICT.encode()
        + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_wrong_http(server, request_):
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
        connection.sendall(request_)
        assert re.match(rb"HTTP/1\.[01] 4\d\d ", connection.recv(100))
    assert server.get("/healthz")[0] == 200


@pytest.mark.parametrize("header", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_body_that_is_cut_off(server, header):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n10\r\n{" % (PREDICT.encode(), header))
    assert server.get("/healthz")[0] == 200


def test_a_body_that_never_comes(make_server, toy):
    server = make_server(toy, timeout_seconds=0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{" % PREDICT.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
    server.stop()


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_that_are_too_large(make_server, toy, chunked):
    server = make_server(toy, max_body_bytes=1000)
    body = b'{"instances": ["a"]}'
    assert server.predict(body + b" " * (1000 - len(body)))[0] == 200
    large = body + b" " * (1001 - len(body))
    # http.client sends what it iterates over in chunks.
    status, _, answer = server.request("POST", PREDICT, iter([large]) if chunked else large)
    assert status == 413
    assert json.loads(answer)["error"].startswith("Request Entity Too Large")
    server.stop()


def resident_bytes():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the process's size from /proc")
def test_memory_is_steady_under_hostile_load(server):
    bodies = [
        json.dumps({"instances": ["x" * 100000]}).encode(),
        json.dumps({"instances": ["x"] * 10000}).encode(),
        json.dumps({"instances": ["y" * 60000] * 100}).encode(),
        b'{"instances": ' + b"[" * 300000,
        random.Random(1).randbytes(2**20),
        json.dumps({"signature_name": "picky", "instances": ["bad"]}).encode(),
        json.dumps({"signature_name": "total", "instances": [[1] * 5000] * 100}).encode(),
        b" " * (8 * 2**20 + 1),
    ]
    expected = [400, 400, 200, 400, 400, 400, 200, 413]

    def round_trip():
        for body, status in zip(bodies, expected, strict=True):
            assert server.request("POST", PREDICT, body)[0] == status

    def growth(rounds):
        gc.collect()
        before = resident_bytes()
        for _ in range(rounds):
            round_trip()
        gc.collect()
        return resident_bytes() - before

    growth(6)
    # A leak shows every time, what an allocator sets aside does not.
    assert growth(12) < 40 * 2**20 or growth(12) < 40 * 2**20
    assert server.get("/healthz")[0] == 200
    assert server.versions.num_in_flight == 0
