"""What the page for those who serve says can be typed as it stands."""

import base64
import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

from keras_transformer.saved_model.signatures import Signatures
from keras_transformer.server.options import ServingOptions

FOLDER = Path(__file__).parents[2] / "export"
PAGE = (FOLDER / "README.md").read_text("utf-8")
COMMANDS = [
    line
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    if not language
    for line in block.replace("\\\n", " ").splitlines()
]
BODIES = [shlex.split(line)[2] for line in COMMANDS if line.startswith("curl -d ")]


def types_of(value):
    """The types of the leaves of nested lists, and how deep these lie; a string of bytes is a string."""
    if isinstance(value, list):
        depths = [types_of(item) for item in value]
        assert len({depth for _, depth in depths}) == 1, value
        return set().union(*(types for types, _ in depths)), depths[0][1] + 1
    if isinstance(value, dict):
        assert value.keys() == {"b64"}
        base64.b64decode(value["b64"], validate=True).decode("utf-8")
        return {str}, 0
    return {type(value)}, 0


def check(value, specification, num_rows):
    types, depth = types_of(value)
    assert types == {{"string": str, "int32": int, "float32": float}[specification.dtype.name]}
    assert depth == specification.shape.rank
    assert len(value) == num_rows
    assert all(len(row) == len(value[0]) for row in value if isinstance(row, list))


@pytest.mark.parametrize("body", BODIES)
def test_requests_fit_the_signatures(body):
    request = json.loads(body)
    wanted = Signatures.INPUTS[request.pop("signature_name", "serving_default")]
    ((form, content),) = request.items()
    if form == "instances":
        (only, *others) = wanted
        rows = content if others else [{only: row} for row in content]
        content = {name: [row[name] for row in rows] for name in rows[0]}
        assert all(row.keys() == wanted.keys() for row in rows)
    else:
        assert form == "inputs"
    assert content.keys() == wanted.keys()
    for name, value in content.items():
        check(value, wanted[name], len(next(iter(content.values()))))


def test_there_is_a_request_for_every_signature():
    names = {json.loads(body).get("signature_name", "serving_default") for body in BODIES}
    assert names == set(Signatures.INPUTS)


def test_a_request_that_is_no_json_or_of_wrong_types_would_be_noticed():
    with pytest.raises(AssertionError):
        test_requests_fit_the_signatures('{"inputs": {"text": [1]}}')
    with pytest.raises(AssertionError):
        test_requests_fit_the_signatures('{"inputs": {"text": "one"}}')
    with pytest.raises(AssertionError):
        test_requests_fit_the_signatures('{"signature_name": "score", "inputs": {"source": ["a"], "target": []}}')
    with pytest.raises(ValueError, match="Expecting"):
        test_requests_fit_the_signatures('{"inputs": {"text": ["one"],}}')


@pytest.mark.parametrize("name", Signatures.INPUTS)
def test_the_table_of_signatures_names_all_inputs(name):
    (inputs,) = re.findall(rf"^\| `{name}` \| (`.*?`) \| .*`truncated`|^\| `{name}` \| (`.*?`) \| as", PAGE, re.M)
    assert re.findall(r"`(\w+)`", "".join(inputs)) == list(Signatures.INPUTS[name])


@pytest.mark.parametrize("option", re.findall(r"^\| .* \| (`--[a-z-]+` \| [\d.]+) \|", PAGE, re.MULTILINE))
def test_limits_of_the_local_server(option):
    name, value = re.fullmatch(r"`--([a-z-]+)` \| ([\d.]+)", option).groups()
    defaults = {field.name: field.default for field in dataclasses.fields(ServingOptions)}
    assert defaults[name.replace("-", "_")] == float(value)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)]+)\)", PAGE))
def test_links_lead_somewhere(target):
    path, _, heading = target.partition("#")
    assert (FOLDER / path).exists()
    if heading:
        headings = [line.lstrip("# ").lower().replace(" ", "-") for line in PAGE.splitlines() if line.startswith("#")]
        assert heading in headings


def test_files_that_are_named_exist():
    files = re.findall(r"`?\b(?:export/)?((?:tensorflow_serving/)?[\w-]+\.(?:py|c|yml|config))\b", PAGE)
    assert {"client_rest.py", "client_grpc.py", "export_saved_model.py", "run_saved_model.c"} <= set(files)
    for name in set(files):
        assert (FOLDER / name).is_file() or (FOLDER / "tensorflow_serving" / name).is_file(), name


def test_the_compiler_line_is_that_of_the_program():
    (line,) = [line for line in COMMANDS if line.startswith("gcc ")]
    comment = (FOLDER / "run_saved_model.c").read_text("utf-8").partition("*/")[0].replace("\\\n", " ")
    (own,) = [one for one in comment.splitlines() if one.strip().startswith("gcc ")]
    options = [set(shlex.split(text)) - {"export/run_saved_model.c", "run_saved_model.c"} for text in (line, own)]
    assert options[0] == options[1] - {"-Wall", "-Wextra"}
