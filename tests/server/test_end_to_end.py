"""A real export behind the real server: strings over HTTP in, the translator's own answers out."""

import base64
import gc
import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch

pytestmark = pytest.mark.slow

PATH = "/v1/models/babbling:predict"
WORDS = "one two three four five eins zwei drei vier fünf".split()


@pytest.fixture(scope="module")
def server(make_server, exported):
    server = make_server(exported, name="babbling")
    yield server
    server.stop()


def sentences(count, seed):
    generator = random.Random(seed)
    found = set()
    while len(found) < count:
        found.add(" ".join(generator.choices(WORDS, k=generator.randint(1, 9))))
    return sorted(found)


def hostile_texts(seed):
    """Bytes of any kind, and text that looks like commands, markup or marks of ours."""
    generator = random.Random(seed)
    yield from (generator.randbytes(generator.randint(1, 40)) for _ in range(20))
    yield from (bytes([byte]) * 3 for byte in (0, 7, 8, 9, 10, 13, 27, 127, 128, 255))
    for text in (
        *("</s>", "<pad>", "<0x41>", "▁", "\u202e", "\ufeff", "\u0000", "${7*7}", "'; DROP TABLE x;--", "{{x}}"),
        *("<script>alert(1)</script>", "../../etc/passwd", "%s%n", "🙂" * 50, "e" + "\u0301" * 200, "\u200b"),
    ):
        yield text.encode()


def test_each_of_many_clients_gets_what_the_translator_gives(server, untrained_translator):
    texts = sentences(16 * 50, seed=1)
    expected = {text: one for text, (one, *_) in zip(texts, untrained_translator.hypotheses(texts), strict=True)}

    def run(client):
        own = texts[client::16]
        random.Random(client).shuffle(own)
        connection = server.connect()
        wrong = []
        for text in own:
            status, answer = server.predict({"instances": [text]}, PATH, connection)
            (row,) = answer.get("predictions", [{}])
            same = (status, row.get("translation"), row.get("finished")) == (
                200,
                expected[text].text,
                expected[text].finished,
            )
            if not same or abs(row["score"] - expected[text].score) > 1e-4:
                wrong.append((text, status, answer))
        connection.close()
        return wrong

    before = server.metric("run_requests_count")
    with ThreadPoolExecutor(16) as pool:
        assert [wrong for wrongs in pool.map(run, range(16)) for wrong in wrongs] == []
    assert server.metric("run_requests_count") - before < 600, "little was batched"


def test_every_signature(server, untrained_translator):
    texts = [*sentences(3, seed=2), ""]
    best = untrained_translator.hypotheses(texts, search=BeamSearch(num_hypotheses=4), return_alignments=True)

    def ask(name, **inputs):
        status, answer = server.predict({"signature_name": name, "inputs": inputs}, PATH)
        assert status == 200, answer
        return answer["outputs"]

    translations = [one.text for one, *_ in best]
    assert ask("serving_default", text=texts)["translation"] == translations
    several = ask("n_best", text=texts)
    for row, count in enumerate(several["num_translations"]):
        assert several["translations"][row][:count] == [one.text for one in best[row]]
    zeros = [0] * len(texts)
    options = {"max_length": zeros, "min_length": zeros, "length_penalty": [0.6] * len(texts)}
    assert ask("options", text=texts, prefix=[""] * len(texts), **options)["translation"] == translations
    scores = ask("score", source=texts[:3], target=translations[:3])
    expected = untrained_translator.score(texts[:3], translations[:3])
    np.testing.assert_allclose(scores["log_probability"], [one.log_probability for one in expected], rtol=1e-4)
    aligned = ask("alignments", text=texts)
    for row, (one, *_) in enumerate(best):
        pairs = [(source, target) for target, source in enumerate(aligned["alignment"][row]) if source >= 0]
        assert pairs == list(one.alignment)
    rows = untrained_translator.tokenizer.encode(texts)
    width = max(map(len, rows))
    tokens = ask("tokens", source_ids=[ids + [0] * (width - len(ids)) for ids in rows])
    for row, (one, *_) in enumerate(best):
        assert tokens["target_ids"][row][: len(one.ids)] == list(one.ids)


def test_any_text_is_answered_and_moves_nobody(server, untrained_translator):
    texts = list(hostile_texts(seed=3))
    columns = [{"b64": base64.b64encode(text).decode()} for text in texts]
    status, answer = server.predict({"inputs": {"text": columns}}, PATH)
    assert status == 200, answer
    readable = [text.decode("utf-8", "replace") for text in texts]
    for text, translation, (one, *_) in zip(
        texts, answer["outputs"]["translation"], untrained_translator.hypotheses(readable), strict=True
    ):
        # Python and TensorFlow make different numbers of U+FFFD of some bytes.
        if "\ufffd" not in text.decode("utf-8", "replace"):
            assert translation == one.text
        assert isinstance(translation, str)


def resident_bytes():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the size of the process from /proc")
def test_hostile_requests_leave_the_server_as_it_was(server, untrained_translator):
    good = sentences(2, seed=4)
    expected = untrained_translator.translate(good)

    def text(*texts, **more):
        return json.dumps({"inputs": {"text": texts}, **more}).encode()

    requests = [
        (text("x" * 100_000), 400),
        (text(*["one"] * 10_000), 400),
        (text("five " * 12_000), 200),  # cut to 1,024 tokens
        (text(*["one two"] * 128), 200),
        (b'{"inputs": {"text": ["one"', 400),
        (b"\xff\xfe\x00", 400),
        (text(1, 2.5), 400),
        (text(["one"], ["two"]), 400),
        (json.dumps({"inputs": {}}).encode(), 400),
        (json.dumps({"inputs": {"sentence": ["one"]}}).encode(), 400),
        (text("one", signature_name="nothing"), 400),
        (text("one", signature_name="score"), 400),
        (text(), 200),
    ]

    def round_trip():
        for body, status in requests:
            assert server.predict(body, PATH)[0] == status, body[:60]
        assert server.predict({"inputs": {"text": good}}, PATH)[1]["outputs"]["translation"] == expected

    for _ in range(3):
        round_trip()
    gc.collect()
    before = resident_bytes()
    for _ in range(5):
        round_trip()
    gc.collect()
    assert resident_bytes() - before < 40 * 2**20
    assert server.get("/healthz")[0] == 200
