"""The server over real HTTP on loopback: protocol, page, metrics, log, an end in order."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keras_transformer.server import http_server

PREDICT = "/v1/models/toy:predict"


# === The protocol ===


def test_status(server):
    expected = {
        "model_version_status": [
            {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    for path in ("/v1/models/toy", "/v1/models/toy/versions/7", "/V1/Models/toy", "/v1/models/%74oy"):
        assert server.get(path) == (200, expected)
    assert server.get("/v1/models/toy/versions/8") == (404, {"error": "Could not find version 8 of model toy"})
    assert server.get("/v1/models/no")[0] == 404


def test_metadata(server):
    """The fields and types that a client of TensorFlow Serving reads."""
    status, answer = server.get("/v1/models/toy/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "toy", "signature_name": "", "version": "7"}
    signature = answer["metadata"]["signature_def"]["signature_def"]["total"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"].keys() == {"ids"}
    assert signature["inputs"]["ids"]["dtype"] == "DT_INT32"
    assert signature["inputs"]["ids"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}, {"size": "-1", "name": ""}],
        "unknown_rank": False,
    }
    assert signature["outputs"].keys() == {"total", "width"}
    assert server.get("/v1/models/toy/versions/7/metadata") == (200, answer)
    assert server.get("/v1/models/toy/versions/8/metadata") == (
        404,
        {"error": "Servable not found for request: Specific(toy, 8)"},
    )


def test_models(server):
    status, answer = server.get("/v1/models")
    assert status == 200
    (model,) = answer["models"]
    assert (model["name"], model["version"]) == ("toy", 7)
    assert {"serving_default", "pair"} < set(model["signatures"])
    assert not [name for name in model["signatures"] if name.startswith("__")]


def test_translator_json(server, make_server, toy, tmp_path):
    assert server.get("/v1/models/toy/translator") == (404, {"error": "The export has no translator.json"})
    shutil.copytree(toy / "7", tmp_path / "1")
    (tmp_path / "1/translator.json").write_text('{"format": 1}')
    other = make_server(tmp_path)
    assert other.get("/v1/models/toy/translator") == (200, {"format": 1})
    other.stop()


def test_predict(server):
    rows = [
        {"upper": "ABC", "length": 3, "third": 1.0, "is_long": False, "raw_bytes": {"b64": "YWJj"}},
        {"upper": "\0�", "length": 2, "third": 0.6666667, "is_long": False, "raw_bytes": {"b64": "AP8="}},
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    instances = ["abc", {"b64": "AP8="}]
    for path in (PREDICT, "/v1/models/toy/versions/7:predict"):
        for document in ({"instances": instances}, {"instances": [{"text": one} for one in instances]}):
            assert server.predict(document, path) == (200, {"predictions": rows})
        for document in ({"inputs": instances}, {"inputs": {"text": instances}}):
            assert server.predict({**document, "signature_name": ""}, path) == (200, {"outputs": columns})


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        ({"signature_name": "greeting", "instances": ["a"]}, {"predictions": ["hello a"]}),
        ({"signature_name": "greeting", "inputs": []}, {"outputs": []}),
        (
            {"signature_name": "letters", "instances": ["ab", "ü"]},
            {
                "predictions": [
                    {"characters": ["a", "b"], "codes": [97, 98]},
                    {"characters": ["ü", ""], "codes": [252, 0]},
                ]
            },
        ),
        (
            {"signature_name": "total", "instances": [[1, 2, 3], [-4, 5, 6]]},
            {"predictions": [{"total": 6, "width": 3}, {"total": 7, "width": 3}]},
        ),
        (
            {"signature_name": "pair", "instances": [{"weight": 1, "name": "a"}, {"name": "b", "weight": 0.5}]},
            {"predictions": ["a=1.00", "b=0.50"]},
        ),
        ({"signature_name": "mean_of_all", "inputs": [1, 2]}, {"outputs": 1.5}),
    ],
)
def test_signatures(server, document, answer):
    assert server.predict(document) == (200, answer)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", PREDICT, {"signature_name": "no", "instances": [1]}, 400, 'name: "no" not found in signature def'),
        ("POST", PREDICT, {"signature_name": "\ud800", "instances": [1]}, 400, "not found in signature def"),
        ("POST", PREDICT, {"signature_name": "pair", "instances": ["a"]}, 400, "multiple inputs are required"),
        ("POST", PREDICT, {"signature_name": "picky", "instances": ["bad"]}, 400, "a row must not be bad"),
        ("POST", PREDICT, {"signature_name": "total", "instances": [1]}, 400, "must have the shape"),
        ("POST", PREDICT, {"signature_name": "mean_of_all", "instances": [1]}, 400, "inconsistent batch sizes"),
        ("POST", PREDICT, {"signature_name": "inverse", "instances": [0]}, 500, "`inverse` holds a number that is not"),
        ("POST", PREDICT, {"instances": ["a"] * 129}, 400, "at most 128 rows. Received: 129"),
        ("POST", PREDICT, {"instances": ["a"] * 10000}, 400, "at most 128 rows. Received: 10000"),
        ("POST", PREDICT, {"instances": ["a" * 100000]}, 400, "at most 65536 bytes. Received: 100000"),
        ("POST", PREDICT, {"instances": ["ä" * 32769]}, 400, "at most 65536 bytes. Received: 65538"),
        ("POST", "/v1/models/no:predict", {"instances": ["a"]}, 404, "Servable not found for request: Latest(no)"),
        ("POST", "/v1/models/toy/versions/8:predict", {"instances": ["a"]}, 404, "Specific(toy, 8)"),
        ("POST", f"/v1/models/toy/versions/{2**64 - 1}:predict", {}, 400, "Failed to convert version"),
        ("POST", f"/v1/models/toy/versions/{'9' * 5000}:predict", {}, 400, "Failed to convert version"),
        ("POST", "/v1/models/toy/versions/x:predict", {}, 400, "Malformed request: POST"),
        ("POST", "/v1/models/toy/version/7:predict", {}, 400, "Malformed request"),
        ("POST", "/v1/models/toy/labels/new:predict", {}, 400, "Unrecognized servable version label: new"),
        ("POST", "/v1/models/toy:classify", {"examples": []}, 400, "no signature to classify"),
        ("POST", "/v1/models/toy:nothing", {}, 400, "Malformed request"),
        ("POST", "/v1/models", {}, 400, "Malformed request"),
        ("POST", "/v1/models/toy", {}, 400, "Malformed request"),
        ("GET", PREDICT, None, 400, "Malformed request: GET /v1/models/toy:predict"),
        ("PUT", PREDICT, {}, 400, "Malformed request: PUT"),
        ("DELETE", "/v1/models/toy", None, 400, "Malformed request: DELETE"),
        ("GET", "/v1/foo", None, 400, "Malformed request"),
        ("GET", "/v1", None, 400, "Malformed request"),
        ("GET", "/v1/models/toy/metadata/x", None, 400, "Malformed request"),
        ("GET", "/v1/models/toy/labels/new", None, 400, "Unrecognized servable version label: new"),
        ("GET", "/v1/models/%ff/metadata", None, 404, "Servable not found"),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("GET", "/page/../http_server.py", None, 404, "Not Found"),
        ("GET", "/..%2f..%2fservable.py", None, 404, "Not Found"),
        ("POST", "/healthz", {}, 405, "Method Not Allowed"),
    ],
)
def test_errors(server, method, path, body, status, message):
    received, headers, answer = server.request(method, path, None if body is None else json.dumps(body).encode())
    assert received == status
    assert headers["Content-Type"].startswith("application/json")
    answer = json.loads(answer)
    assert answer.keys() == {"error"}
    assert message in answer["error"]


def test_headers(server, monkeypatch):
    for method, path, body in [
        ("GET", "/v1/models/toy", None),
        ("POST", PREDICT, b"{}"),
        ("GET", "/nothing", None),
        ("GET", "/metrics", None),
        ("POST", PREDICT, b" " * (8 * 2**20 + 1)),
    ]:
        _, headers, _ = server.request(method, path, body)
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not [name for name in headers if name.lower().startswith("access-control-")]
        assert "aiohttp" not in str(headers)


def test_page(server):
    folder = Path(http_server.__file__).parent / "page"
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    files = [path for path in folder.iterdir() if path.suffix in types]
    assert {"index.html", "page.css", "page.js"} <= {path.name for path in files}
    for path in files:
        status, headers, body = server.request("GET", "/" if path.name == "index.html" else f"/{path.name}")
        assert status == 200
        assert headers["Content-Type"] == f"{types[path.suffix]}; charset=utf-8"
        assert body == path.read_bytes()


def test_health_and_loading(make_server, toy):
    server = make_server(toy)
    status, headers, body = server.request("GET", "/healthz")
    assert (status, json.loads(body)) == (200, {"model": "toy", "version": 7})
    current, server.versions._current = server.versions._current, None
    try:
        status, headers, body = server.request("GET", "/healthz")
        assert status == 503
        assert headers["Retry-After"] == "1"
        assert server.predict({"instances": ["a"]}) == (503, {"error": "No version is loaded yet."})
        assert server.get("/v1/models") == (200, {"models": []})
    finally:
        server.versions._current = current
    server.stop()


# === Metrics and log ===


def test_metrics(make_server, toy):
    server = make_server(toy)
    server.predict({"instances": ["a", "b"]})
    server.predict({"instances": ["a"]})
    server.predict({"instances": [1]})
    server.predict({"signature_name": "invented", "instances": [1]})
    server.predict({"signature_name": "picky", "instances": ["bad"]})
    server.get("/nothing")
    assert server.metric("requests_total", signature="serving_default", code="OK") == 2
    assert server.metric("requests_total", signature="picky", code="INVALID_ARGUMENT") == 1
    assert server.metric("requests_total", signature="", code="INVALID_ARGUMENT") == 2
    assert server.metric("requests_total") == 5
    assert server.metric("request_seconds_count", signature="serving_default") == 2
    assert server.metric("run_rows_sum", signature="serving_default") == 3
    assert server.metric("run_rows_count", signature="serving_default") == 2
    assert server.metric("http_responses_total", status="400") == 3
    assert server.metric("http_responses_total", status="404") == 1
    assert server.metric("model_version") == 7
    for name in ("requests_in_flight", "queue_length", "runs_in_flight"):
        assert server.metric(name) == 0
    status, headers, body = server.request("GET", "/monitoring/prometheus/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert b"# HELP keras_transformer_queue_length " in body
    assert b"invented" not in body
    server.stop()


def test_access_log(make_server, toy, capsys):
    quiet = make_server(toy)
    quiet.predict({"instances": ["a"]})
    quiet.stop()
    assert capsys.readouterr().out == ""
    server = make_server(toy, access_log=True)
    server.predict({"instances": ["a"]})
    server.request("GET", "/no%0Aline")
    server.stop()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["method"], line["path"], line["status"], line.get("signature")) for line in lines] == [
        ("POST", PREDICT, 200, "serving_default"),
        ("GET", "/no\nline", 404, None),
    ]
    assert all(line["milliseconds"] >= 0 and line["remote"] == "127.0.0.1" for line in lines)


# === Addresses and ends ===


def test_a_port_that_is_taken(server, make_server, toy):
    from keras_transformer.server.options import ServingOptions
    from keras_transformer.server.versions import ServedVersions

    async def start():
        other = http_server.HttpServer(ServedVersions("toy", toy, ServingOptions(port=server.port)))
        try:
            await other.start()
        finally:
            await other.stop_listening()
            await other.stop()

    with pytest.raises(OSError, match="address already in use"):
        server.call(start())
    assert server.get("/healthz")[0] == 200


def test_an_end_in_order(make_server, toy):
    server = make_server(toy, max_batch_rows=1)
    document = {"signature_name": "slow", "instances": [10**5]}
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(server.predict, document) for _ in range(5)]
        server.wait_until(lambda: server.versions.num_in_flight == 5)
        idle = server.connect()
        assert server.request("GET", "/healthz", connection=idle)[0] == 200
        server.stop()
        assert [answer.result() for answer in answers] == [(200, {"predictions": [10**5]})] * 5
    with pytest.raises(ConnectionRefusedError):
        server.connect().connect()
    idle.close()
    assert not [thread for thread in threading.enumerate() if thread is server._thread]
