"""The page of the server in a real browser, against a stub that gives canned answers in the protocol's shape."""

import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

import keras_transformer

PAGE = Path(keras_transformer.__file__).parent / "server" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LOWEST = -3.4028234663852886e38
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TRANSLATIONS = {
    "Ein Hund läuft über die Wiese.": [
        ("A dog runs across the meadow.", -0.31, -1.02),
        ("A dog is running across the meadow.", -0.4, -1.55),
        ("A dog runs over the meadow.", -0.52, -1.87),
    ],
    "Zwei Kinder spielen.": [("Two children play.", -0.25, -0.75), ("Two children are playing.", -0.3, -0.9)],
    "The book is new.": [("الكتاب جديد .", -0.2, -0.5)],
}
ALL_SIGNATURES = ("serving_default", "n_best", "score", "options", "tokens", "alignments")


class Stub:
    """A server of one model. Tests change its attributes; `requests` are the bodies that were posted."""

    def __init__(self):
        self.reset()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                stub.get(self)

            def do_POST(self):
                stub.post(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def reset(self):
        self.signatures = ALL_SIGNATURES
        self.has_translator_json = True
        self.name, self.version = "small-talk", 3
        self.columns_of_default = ("translation", "score", "log_probability", "finished", "truncated")
        self.translations = dict(TRANSLATIONS)
        self.truncated, self.finished = False, True
        self.failure = None  # (status, body) instead of an answer to predict
        self.failing_signatures = ALL_SIGNATURES
        self.hold = {}  # text -> Event to wait for before answering
        self.requests = []

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def send(self, handler, body, status=200, content_type="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode()
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", content_type)
            handler.send_header("Content-Length", str(len(body)))
            handler.send_header("Content-Security-Policy", POLICY)
            handler.end_headers()
            handler.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page gave the request up

    def get(self, handler):
        model = f"/v1/models/{quote(self.name, safe='')}"
        about = {"name": self.name, "version": self.version, "signatures": list(self.signatures)}
        answers = {"/v1/models": {"models": [about] if self.version else []}}
        if self.has_translator_json:
            answers[f"{model}/translator"] = {
                "format": 1,
                "search": {"kind": "beam", "beam_size": 4, "length_penalty": 0.6},
                "limits": {"max_source_tokens": 128},
            }
        file = PAGE / (handler.path.lstrip("/") or "index.html")
        if handler.path in answers:
            self.send(handler, answers[handler.path])
        elif file.parent == PAGE and file.is_file():
            self.send(handler, file.read_bytes(), content_type=TYPES[file.suffix])
        else:
            self.send(handler, {"error": f"not found: {handler.path}"}, 404)

    def post(self, handler, body):
        self.requests.append(body)
        texts = body["inputs"]["text"]
        for text in texts:
            if text in self.hold:
                self.hold[text].wait(20)
        if self.failure and body["signature_name"] in self.failing_signatures:
            self.send(handler, self.failure[1], self.failure[0])
        elif (
            handler.path != f"/v1/models/{quote(self.name, safe='')}:predict"
            or body["signature_name"] not in self.signatures
        ):
            self.send(handler, {"error": f"no signature {body['signature_name']}"}, 400)
        else:
            self.send(handler, {"outputs": getattr(self, body["signature_name"])(texts)})

    def found(self, text):
        return self.translations.get(text, [(text.upper(), -1.0, -2.0)])

    def serving_default(self, texts):
        texts_, scores, log_probabilities = zip(*(self.found(text)[0] for text in texts), strict=True)
        rows = len(texts)
        columns = {
            "translation": texts_,
            "score": scores,
            "log_probability": log_probabilities,
            "finished": [self.finished] * rows,
            "truncated": [self.truncated] * rows,
        }
        columns = {name: columns[name] for name in self.columns_of_default}
        return columns if len(columns) > 1 else next(iter(columns.values()))

    def n_best(self, texts):
        rows = [self.found(text) for text in texts]
        padded = [row + [("", LOWEST, LOWEST)] * (4 - len(row)) for row in rows]
        columns = [[[place[column] for place in row] for row in padded] for column in range(3)]
        return {
            **dict(zip(("translations", "scores", "log_probabilities"), columns, strict=True)),
            "finished": [[self.finished and place < len(row) for place in range(4)] for row in rows],
            "num_translations": [len(row) for row in rows],
            "truncated": [self.truncated] * len(rows),
        }

    def alignments(self, texts):
        pairs = [(text.split(), self.found(text)[0][0].split()) for text in texts]
        most_source, most_target = (2 + max(len(pair[side]) for pair in pairs) for side in (0, 1))
        attention = [
            [
                [self.weight(s, t, len(target)) for s in range(len(source))] + [0] * (most_source - len(source))
                for t in range(len(target))
            ]
            + [[0] * most_source] * (most_target - len(target))
            for source, target in pairs
        ]
        best = [[row.index(max(row)) if max(row) else -1 for row in matrix] for matrix in attention]
        return {
            **self.serving_default(texts),
            "source_words": [source + [""] * (most_source - len(source)) for source, _ in pairs],
            "target_words": [target + [""] * (most_target - len(target)) for _, target in pairs],
            "attention": attention,
            "alignment": best,
        }

    @staticmethod
    def weight(source, target, num_targets):
        """Most of the attention crosses over to the mirrored place, a little stays; the rest is too weak to draw."""
        return {num_targets - 1 - target: 0.7, target: 0.2}.get(source, 0.01)


@pytest.fixture(scope="module")
def server():
    stub = Stub()
    yield stub
    stub.close()


@pytest.fixture(scope="module")
def driver():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    chromedriver = shutil.which("chromedriver")
    if not browser or not chromedriver:
        pytest.skip(f"needs a browser ({', '.join(BROWSERS)}) and chromedriver on the path")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=chromedriver))
    driver.set_script_timeout(20)
    yield driver
    driver.quit()


class Page:
    """What a person does with the page and sees of it."""

    def __init__(self, driver, server):
        from selenium.webdriver.common.keys import Keys

        self.driver, self.server, self.keys = driver, server, Keys
        self.expected_console = []
        self._network = []

    def network(self, method):
        """Parameters of the events of that name on the browser's network log, from the start of the test."""
        self._network += [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"] for event in self._network if event["method"] == method]

    def open(self, *, width=1000, height=1200, scheme="light", motion="reduce"):
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        self.cdp(
            "Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features.items()]
        )
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)
        self.driver.get(self.server.url)
        self.wait(lambda: self.text("#model-name") or self.text("#error"), "the page asked for the model")

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.one(selector).text

    def texts(self, selector):
        return [element.text for element in self.all(selector)]

    def wait(self, condition, what):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 20, 0.02).until(lambda _: condition(), f"never came true: {what}")

    def type(self, text):
        box = self.one("#text")
        box.clear()
        box.send_keys(text)

    def translate(self, text):
        """Type, click and wait for the end, be it good or bad."""
        self.type(text)
        self.one("#submit").click()
        self.wait(lambda: self.one("#form").get_attribute("aria-busy") == "false", "the translation ended")

    def align(self):
        self.wait(lambda: self.all(".links path[d]"), "the links are drawn")

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        *held, key = keys
        chain = ActionChains(self.driver)
        for each in held:
            chain.key_down(each)
        chain.send_keys(key)
        for each in held:
            chain.key_up(each)
        chain.perform()

    def point_at(self, element):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).move_to_element(element).perform()

    def focused(self):
        return self.driver.switch_to.active_element

    def overflow(self):
        return self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def rectangle(self, element):
        return SimpleNamespace(**self.run("return arguments[0].getBoundingClientRect().toJSON()", element))


@pytest.fixture
def page(driver, server):
    """A page on which nothing may go wrong unseen: no word on the console, no request to anywhere else."""
    server.reset()
    driver.get_log("browser"), driver.get_log("performance")
    page = Page(driver, server)
    yield page
    console = [entry["message"] for entry in driver.get_log("browser")]
    requests = [event["request"]["url"] for event in page.network("Network.requestWillBeSent")]
    for hold in server.hold.values():
        hold.set()
    for expected in page.expected_console:
        assert any(expected in message for message in console), (expected, console)
    assert not [m for m in console if not any(expected in m for expected in page.expected_console)]
    assert requests, "the log of requests is empty: this check would see nothing"
    assert not [url for url in requests if not url.startswith(page.server.url)]


@pytest.mark.slow
def test_with_a_real_export(driver, make_server, exported, untrained_translator):
    server = make_server(exported, name="babbling")
    driver.get_log("browser")
    page = Page(driver, SimpleNamespace(url=f"http://127.0.0.1:{server.port}/"))
    page.open()
    assert page.text("#model-name") == "babbling"
    page.translate("one two\nthree <b>four</b>")
    expected = untrained_translator.hypotheses(["one two", "three <b>four</b>"])
    assert page.texts(".translation") == [one.text for one, *_ in expected]
    page.align()
    page.run("arguments[0].value = 'x'.repeat(70000)", page.one("#text"))  # as pasted: typing takes minutes
    page.one("#submit").click()
    page.wait(lambda: "must have at most 65536 bytes" in page.text("#error"), "the error is shown")
    server.stop()
    assert [entry["message"] for entry in driver.get_log("browser") if "400" not in entry["message"]] == []


FIRST, SECOND = list(TRANSLATIONS)[:2]


def test_files_are_plain():
    """No inline script or style, no outside asset, no HTML made from text: what the server's policy would forbid."""
    html = (PAGE / "index.html").read_text("utf-8")
    script = (PAGE / "page.js").read_text("utf-8")
    style = (PAGE / "page.css").read_text("utf-8")
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=\"page\.js\"></script>)", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|style=", script)
    assert "url(" not in style
    assert "@import" not in style
    addresses = re.findall(r"https?://[^\s\"']+", html + script + style + (PAGE / "icon.svg").read_text("utf-8"))
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a namespace: nothing is fetched
    assert {path.name for path in PAGE.iterdir()} == {"index.html", "page.css", "page.js", "icon.svg"}


def test_translates(page, server):
    page.open()
    assert page.text("#model-name") == "small-talk"
    assert page.text("#model-version") == "3"
    assert page.text("#model-search") == "beam search, 4 beams"
    assert "small-talk" in page.driver.title
    assert not page.one("#results").is_displayed()
    page.translate(f"{FIRST}\n\n  {SECOND}  \n")
    assert page.texts(".source") == [FIRST, SECOND]
    assert page.texts(".translation") == ["A dog runs across the meadow.", "Two children play."]
    assert page.text(".sentence-foot .scores") == "Score\n−0.31\nLog-probability\n−1.02"
    assert page.text("#summary").startswith("2 sentences in ")
    announcement = page.one("#announcement").get_attribute("textContent")
    assert "A dog runs across the meadow. Two children play." in announcement
    page.align()
    # All sentences at once; the alignment only of the sentence whose details are open.
    assert server.requests == [
        {"signature_name": "n_best", "inputs": {"text": [FIRST, SECOND]}},
        {"signature_name": "alignments", "inputs": {"text": [FIRST]}},
    ]
    second = page.all(".sentence")[1]
    second.find_element("css selector", "summary").click()
    page.wait(lambda: second.find_elements("css selector", ".links path[d]"), "the second alignment is drawn")
    assert server.requests[2:] == [{"signature_name": "alignments", "inputs": {"text": [SECOND]}}]


def test_lists_the_best_translations(page):
    page.open()
    page.translate(FIRST)
    # Three were found; the fourth place is padding.
    assert page.texts(".hypotheses > li > p") == [text for text, _, _ in TRANSLATIONS[FIRST]]
    assert [text.split("\n") for text in page.texts(".hypotheses .scores")] == [
        ["Score", f"−{-score:.2f}", "Log-probability", f"−{-log_probability:.2f}"]
        for _, score, log_probability in TRANSLATIONS[FIRST]
    ]


def test_draws_the_alignment(page, server):
    page.open()
    page.translate(FIRST)
    page.align()
    answer = server.alignments([FIRST])
    source, target = FIRST.split(), "A dog runs across the meadow.".split()
    assert page.texts(".source-words > li") == source
    assert page.texts(".target-words > li") == target
    boxes = [[page.rectangle(word) for word in page.all(f".{side}-words > li")] for side in ("source", "target")]
    origin = page.rectangle(page.one(".links"))
    expected = {}
    for t in range(len(target)):
        for s in range(len(source)):
            if (weight := answer["attention"][0][t][s]) >= 0.02:
                above, below = boxes[0][s], boxes[1][t]
                start = (above.left + above.width / 2 - origin.left, above.bottom - origin.top)
                end = (below.left + below.width / 2 - origin.left, below.top - origin.top)
                expected[tuple(round(number) for number in start + end)] = (weight, s == answer["alignment"][0][t])
    drawn = {}
    for path in page.all(".links path"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get_attribute("d"))]
        ends = tuple(round(number) for number in numbers[:2] + numbers[-2:])
        drawn[ends] = (float(path.get_attribute("stroke-opacity")), path.get_attribute("class") == "is-best")
    assert drawn == expected
    assert len(drawn) == 2 * len(target)
    page.one(".matrix > summary").click()
    assert page.texts(".matrix thead th") == source
    assert page.texts(".matrix tbody th") == target
    cells = [[int(cell) for cell in text.split()[-len(source) :]] for text in page.texts(".matrix tbody tr")]
    assert cells == [
        [round(100 * weight) for weight in row[: len(source)]] for row in answer["attention"][0][: len(target)]
    ]


def test_a_word_shows_its_links(page):
    page.open()
    page.translate(FIRST)
    page.align()
    assert not page.all(".is-on")
    dog = page.all(".target-words > li")[1]
    page.point_at(dog)
    page.wait(lambda: page.all(".is-on"), "the links of the word are shown")
    assert len(page.all(".is-on")) == 2
    assert page.text(".reading") == "dog looks at die 70%, Hund 20%"
    weights = page.run(
        "return arguments[0].map(word => Number(getComputedStyle(word).getPropertyValue('--weight')))",
        page.all(".source-words > li"),
    )
    assert weights == [0.01, 0.2, 0.01, 0.01, 0.7, 0.01]
    page.point_at(page.all(".source-words > li")[0])
    page.wait(lambda: page.text(".reading").startswith("Ein"), "the other word is read")
    assert page.text(".reading") == "Ein is read for meadow. 70%, A 20%"
    page.point_at(page.one("h1"))
    page.wait(lambda: not page.all(".is-on"), "the links are as before")


def test_keyboard_only(page):
    page.open()
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    assert page.focused().get_attribute("id") == "text"
    assert page.one(".composer").value_of_css_property("outline-style") == "solid"
    page.press(FIRST)
    page.press(page.keys.CONTROL, page.keys.ENTER)
    page.align()

    stops = []
    for _ in range(20):
        page.press(page.keys.TAB)
        element = page.focused()
        if element.tag_name == "body" or element.get_attribute("href"):
            break
        stops.append(element.get_attribute("class") or element.tag_name)
        outline = element.value_of_css_property("outline-style"), element.value_of_css_property("outline-width")
        assert outline == ("solid", "3px"), stops[-1]
        if stops[-1] == "quiet copy":
            page.press(page.keys.ENTER)
            page.wait(lambda: page.text(".copy-label") == "Copied", "the button says so")
            read = "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(String(error)))"
            assert page.driver.execute_async_script(read) == "A dog runs across the meadow."
        if stops[-1] == "word":
            # One stop for a row of words; the arrows move inside.
            row = page.all(".source-words > li" if stops.count("word") == 1 else ".target-words > li")
            for key, index in [("ARROW_RIGHT", 1), ("ARROW_RIGHT", 2), ("ARROW_LEFT", 1), ("END", 5), ("HOME", 0)]:
                page.press(getattr(page.keys, key))
                assert page.focused() == row[index]
                assert row[index].get_attribute("aria-selected") == "true"
                assert page.text(".reading").startswith(row[index].text)
    assert stops == ["primary", "quiet copy", "summary", "word", "word", "summary"]

    page.press(page.keys.SHIFT, page.keys.TAB)
    page.press(page.keys.ENTER)
    assert page.one(".matrix table").is_displayed()


def test_shows_an_error_and_recovers(page, server):
    page.expected_console = ["400 (Bad Request)"]
    page.open()
    page.translate(SECOND)
    server.failure = (400, {"error": "text[0] has 70000 bytes, at most 65536 are read"})
    page.translate(FIRST)
    alert = page.one("[role=alert]")
    assert alert.text == "The server says: text[0] has 70000 bytes, at most 65536 are read (HTTP 400)"
    assert not page.one("#results").is_displayed(), "a translation of another text is left"
    server.failure = None
    page.translate(FIRST)
    assert alert.text == ""
    assert page.texts(".translation") == ["A dog runs across the meadow."]


def test_an_alignment_that_fails_leaves_the_translation(page, server):
    page.expected_console = ["503 (Service Unavailable)"]
    page.open()
    server.failure, server.failing_signatures = (503, {"error": "the queue is full"}), ("alignments",)
    page.translate(FIRST)
    page.wait(lambda: "the queue is full" in page.text(".alignment-note"), "the failure is told")
    assert page.texts(".translation") == ["A dog runs across the meadow."]
    assert page.text("#error") == ""


@pytest.mark.parametrize(("status", "body", "said"), [(200, b"<html>", "not JSON"), (502, b"<html>", "Bad Gateway")])
def test_an_answer_that_is_not_json(page, server, status, body, said):
    page.expected_console = ["502 (Bad Gateway)"] if status == 502 else []
    page.open()
    server.failure = (status, body)
    page.translate(FIRST)
    assert said in page.text("#error")


def test_a_server_that_is_gone(page):
    page.expected_console = ["ERR_CONNECTION_REFUSED"]
    page.server = Stub()
    page.open()
    page.server.close()
    page.translate(FIRST)
    assert page.text("#error") == "The server does not answer. Is it still running?"


def test_a_server_without_a_model(page, server):
    server.version = None
    page.open()
    assert page.text("#error") == "The server has no model ready."
    assert not page.one("#model").is_displayed()
    server.version = 4
    page.translate(FIRST)
    assert page.text("#error") == ""
    assert page.text("#model-version") == "4"


def test_hostile_text_is_text(page, server):
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;"
    server.name = "<b>name</b> ?/#%"
    page.open()
    assert page.text("#model-name") == server.name
    server.translations[hostile] = [(hostile, -0.1, -0.2), (f"</p>{hostile}", -0.2, -0.3)]
    page.translate(hostile)
    page.align()
    assert page.texts(".source") == page.texts(".translation") == [hostile]
    assert page.texts(".hypotheses > li > p") == [hostile, f"</p>{hostile}"]
    assert page.texts(".target-words > li") == hostile.split()
    page.point_at(page.all(".target-words > li")[1])
    page.wait(lambda: page.text(".reading").startswith(hostile.split()[1]), "the word is read")
    assert not page.all("main img, main script, .source *, .translation *, .word *, .reading :not(bdi)")


def test_an_error_with_hostile_text_is_text(page, server):
    page.expected_console = ["400 (Bad Request)"]
    page.open()
    server.failure = (400, {"error": "<img src=x onerror=alert(1)>"})
    page.translate(FIRST)
    assert "<img src=x onerror=alert(1)>" in page.text("#error")
    assert not page.all("main img")


@pytest.mark.parametrize("width", [320, 768])
def test_narrow_window(page, server, width):
    long = " ".join(f"{letter}wörter" for letter in "abcdefghijklmnop")
    server.translations[f"{long} {'x' * 80}"] = [(f"{long} {'y' * 80}", -0.5, -8.25)] * 3
    server.truncated, server.finished = True, False
    server.name = "a-model-with-a-rather-long-name-without-any-place-to-break-it-in-two"
    page.open(width=width)
    page.translate(f"{long} {'x' * 80}\n{SECOND}")
    page.align()
    page.one(".matrix > summary").click()
    assert page.overflow() == 0
    # The words do not fit in a row: they stand in columns, side by side, the links between them.
    assert page.one(".drawing").get_attribute("data-layout") == "down"
    left, right = page.rectangle(page.one(".source-words")), page.rectangle(page.one(".target-words"))
    assert left.right < right.left
    for path in page.all(".links path")[:4]:
        x1, _, x2, _ = (float(re.findall(r"-?[\d.]+", path.get_attribute("d"))[place]) for place in (0, 1, -2, -1))
        assert left.width == pytest.approx(x1, abs=1)
        assert right.left - left.left == pytest.approx(x2, abs=1)
    # A wider window later brings the rows back where they fit.
    page.cdp("Emulation.setDeviceMetricsOverride", width=2000, height=900, deviceScaleFactor=1, mobile=False)
    page.all(".sentence")[1].find_element("css selector", "summary").click()
    drawing = page.all(".drawing")[1]
    page.wait(lambda: len(drawing.find_elements("css selector", "path[d]")) == 5, "drawn")
    assert drawing.get_attribute("data-layout") == "across"


def test_without_n_best(page, server):
    server.signatures = ("serving_default", "alignments")
    page.open()
    page.translate(f"{FIRST}\n{SECOND}")
    page.align()
    assert server.requests[0] == {"signature_name": "serving_default", "inputs": {"text": [FIRST, SECOND]}}
    assert page.texts(".translation") == ["A dog runs across the meadow.", "Two children play."]
    assert page.text(".sentence-foot .scores") == "Score\n−0.31\nLog-probability\n−1.02"
    assert page.text(".more > summary") == "Word alignment"
    assert not any(part.is_displayed() for part in page.all(".hypotheses-part"))


def test_without_alignments(page, server):
    server.signatures = ("serving_default", "n_best")
    page.open()
    page.translate(FIRST)
    assert page.text(".more > summary") == "Other translations"
    assert len(page.all(".hypotheses > li")) == 3
    assert not page.one(".alignment-part").is_displayed()
    assert [request["signature_name"] for request in server.requests] == ["n_best"]


def test_a_bare_export(page, server):
    """Nothing but `serving_default` with a single output, which the protocol gives without its name."""
    server.signatures, server.columns_of_default = ("serving_default",), ("translation",)
    server.has_translator_json = False
    page.expected_console = ["404 (Not Found)"]
    page.open()
    assert page.text("#model-version") == "3"
    assert not page.one("#model-search").is_displayed()
    page.translate(f"{FIRST}\n{SECOND}")
    assert page.texts(".translation") == ["A dog runs across the meadow.", "Two children play."]
    assert page.texts(".sentence-foot .scores") == ["", ""]
    assert not any(part.is_displayed() for part in page.all(".more"))
    assert page.text("#error") == ""


def test_flags_in_words(page, server):
    page.open()
    page.translate(FIRST)
    assert not any(flag.is_displayed() for flag in page.all(".flags"))
    server.truncated, server.finished = True, False
    page.translate(FIRST)
    flags = page.texts(".sentence > .flags > li")
    assert len(flags) == 2
    assert "128 tokens" in flags[0]
    assert "length limit" in flags[1]
    assert page.texts(".hypotheses .flags > li") == ["Reached the length limit."] * 3


def test_empty_input(page, server):
    page.open()
    page.translate(" \n \n")
    assert "Type a sentence" in page.text("[role=alert]")
    assert page.focused() == page.one("#text")
    assert page.one("#text").get_attribute("aria-invalid") == "true"
    assert server.requests == []
    page.press("x")
    assert page.text("[role=alert]") == ""
    assert page.one("#text").get_attribute("aria-invalid") is None


def test_an_empty_translation(page, server):
    server.translations["…"] = [("", -0.1, -0.1)]
    page.open()
    page.translate("…")
    assert page.texts(".translation") == ["No words"]
    assert not page.one(".copy").is_displayed()
    page.wait(lambda: page.text(".alignment-note") == "There are no words to align.", "nothing to align")


def test_a_new_text_replaces_one_under_way(page, server):
    server.hold[FIRST] = threading.Event()
    page.open()
    page.type(FIRST)
    page.one("#submit").click()
    page.wait(lambda: server.requests, "the first text is under way")
    assert page.one("#form").get_attribute("aria-busy") == "true"
    page.translate(SECOND)
    assert page.texts(".translation") == ["Two children play."]
    server.hold[FIRST].set()
    page.align()
    # The first answer is out by now: a request that follows it has been answered.
    page.run("return fetch('v1/models').then(answer => answer.text())")
    assert page.texts(".translation") == ["Two children play."]
    assert page.text("#error") == ""
    aborted = [event for event in page.network("Network.loadingFailed") if event["canceled"]]
    assert len(aborted) == 1


def test_many_sentences_go_in_parts(page, server):
    sentences = [f"sentence number {index}" for index in range(40)]
    page.open()
    page.run("arguments[0].value = arguments[1]", page.one("#text"), "\n".join(sentences))
    page.one("#submit").click()
    page.wait(lambda: len(page.all(".sentence")) == 40, "all are there")
    assert [len(r["inputs"]["text"]) for r in server.requests if r["signature_name"] == "n_best"] == [16, 16, 8]
    assert page.texts(".translation") == [sentence.upper() for sentence in sentences]
    assert page.texts(".number") == [f"Sentence {number}" for number in range(1, 41)]
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.one("#copy-all").click()
    page.wait(lambda: page.text("#copy-all") == "Copied", "the button says so")
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(String(error)))"
    assert page.driver.execute_async_script(read) == "\n".join(sentence.upper() for sentence in sentences)


def test_text_from_right_to_left(page):
    page.open()
    page.translate("The book is new.")
    page.align()
    assert page.one(".source").value_of_css_property("direction") == "ltr"
    assert page.one(".translation").value_of_css_property("direction") == "rtl"
    words = page.all(".target-words > li")
    assert [word.text for word in words] == "الكتاب جديد .".split()
    lefts = [page.rectangle(word).left for word in words]
    assert lefts == sorted(lefts, reverse=True)
    page.run("arguments[0].focus()", words[0])
    page.press(page.keys.ARROW_LEFT)
    assert page.focused() == words[1]
    page.press(page.keys.ARROW_RIGHT)
    assert page.focused() == words[0]


def test_motion_only_where_it_is_wanted(page):
    for motion, name in [("reduce", "none"), ("no-preference", "appear")]:
        page.open(motion=motion)
        page.translate(FIRST)
        assert page.one(".sentence").value_of_css_property("animation-name") == name


def linear(channel):
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def contrast(one, other):
    """The contrast ratio of WCAG 2 of two colours in sRGB, channels from 0 to 1."""
    light, dark = sorted(
        (
            sum(part * linear(c) for part, c in zip((0.2126, 0.7152, 0.0722), colour, strict=True))
            for colour in (one, other)
        ),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_right():
    assert contrast((1, 1, 1), (0, 0, 0)) == pytest.approx(21)
    grey = (0x77 / 255,) * 3
    assert contrast(grey, (1, 1, 1)) == pytest.approx(4.48, abs=0.005)  # the well-known grey that just fails


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours(page, server, scheme):
    server.truncated = True
    page.open(scheme=scheme)
    page.translate(f"{FIRST}\n{SECOND}")
    page.align()
    names = "ground surface ink muted accent on-accent danger notice on-notice edge".split()
    values = page.run(
        "const style = getComputedStyle(document.documentElement);"
        "return arguments[0].map(name => style.getPropertyValue(`--${name}`))",
        names,
    )
    colours = {
        name: tuple(int(value.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5))
        for name, value in zip(names, values, strict=True)
    }
    assert (sum(colours["ground"]) < sum(colours["ink"])) == (scheme == "dark")
    shown = re.findall(r"\d+", page.one("html").value_of_css_property("background-color"))[:3]
    assert [int(channel) / 255 for channel in shown] == pytest.approx(colours["ground"])
    # A word or cell that gets all the attention is tinted the most.
    for name, below in {"word": "ground", "cell": "surface"}.items():
        colours[name] = tuple(0.4 * a + 0.6 * b for a, b in zip(colours["accent"], colours[below], strict=True))
    pairs = [("on-accent", "accent"), ("on-notice", "notice"), ("ink", "word"), ("ink", "cell"), ("danger", "surface")]
    pairs += [(text, below) for text in ("ink", "muted", "accent") for below in ("ground", "surface")]
    for text, below in pairs:
        assert contrast(colours[text], colours[below]) >= 4.5, (text, below)
    for below in ("ground", "surface"):
        assert contrast(colours["edge"], colours[below]) >= 3, below


def test_accessible_names_and_structure(page, server):
    server.truncated = True
    page.open()
    page.translate(f"{FIRST}\n{SECOND}")
    page.align()
    page.one(".matrix > summary").click()
    nodes = [node for node in page.cdp("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    named = {"button", "link", "textbox", "listbox", "option", "region", "heading", "DisclosureTriangle", "navigation"}
    seen = set()
    for node in nodes:
        role = node["role"]["value"]
        if role in named:
            seen.add(role)
            assert node["name"]["value"].strip(), node
    assert {"button", "link", "textbox", "listbox", "option", "region", "heading"} <= seen
    names = [node["name"]["value"] for node in nodes if node["role"]["value"] == "button"]
    assert names == ["Translate", "Copy all", "Copy translation 1", "Copy translation 2"]
    levels = page.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels == [1, 2, 3, 4, 4, 3, 4, 4]
    ids = page.run("return [...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    assert page.one("html").get_attribute("lang") == "en"
    assert page.one("meta[name=viewport]").get_attribute("content") == "width=device-width, initial-scale=1"
    # The texts may be of any language: the page does not claim them to be English.
    assert page.run("return document.querySelector('.translation').lang") == ""
    assert page.run("return document.querySelector('.translation').getAttribute('lang')") == ""
    small = [
        button.text
        for button in page.all("button, summary, a")
        if button.is_displayed() and min(page.rectangle(button).width, page.rectangle(button).height) < 24
    ]
    assert small == [], "smaller than 24 pixels: hard to hit"
