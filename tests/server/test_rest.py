"""JSON to arrays and back, against expectations written out, and against `json` and `struct` by hypothesis."""

import base64
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.server import rest
from keras_transformer.server.servable import ServingError, TensorSpec
from keras_transformer.server.versions import VersionStatus


def spec(dtype):
    return TensorSpec("graph:0", np.dtype(dtype), None)


TEXT = {"text": spec(object)}
PAIR = {"number": spec(np.float32), "text": spec(object)}


def decode(document, inputs=TEXT):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return rest.decode_request(rest.parse_request(body), inputs)


def encode(outputs, in_rows=True):
    body = rest.encode_response(outputs, in_rows)
    assert body.endswith(b"\n")
    return json.loads(body.decode("utf-8"), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))


def refused(document, inputs=TEXT):
    """The message of the error, which must be INVALID_ARGUMENT and can be sent."""
    with pytest.raises(ServingError) as caught:
        decode(document, inputs)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert len(caught.value.message) < 400
    assert json.loads(rest.error_body(caught.value.message).decode("utf-8")).keys() == {"error"}
    return caught.value.message


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


# === Requests ===


@pytest.mark.parametrize(
    ("document", "expected", "in_rows"),
    [
        ({"instances": ["a", "ä\0"]}, [b"a", "ä\0".encode()], True),
        ({"instances": [{"text": "a"}, {"text": {"b64": "AP8="}}]}, [b"a", b"\0\xff"], True),
        ({"instances": [{"b64": "AP8="}, "b", {"b64": "AP8"}]}, [b"\0\xff", b"b", b"\0\xff"], True),
        ({"inputs": ["a", {"b64": ""}]}, [b"a", b""], False),
        ({"inputs": {"text": ["a"]}, "signature_name": "x", "more": 1}, [b"a"], False),
        ({"inputs": {"text": ["a"], "more": [1]}}, [b"a"], False),
        ({"inputs": []}, [], False),
        ({"inputs": "a"}, b"a", False),
        ({"inputs": {"b64": "YQ=="}}, b"a", False),
        ({"instances": [["a", "b"], ["c", "d"]]}, [[b"a", b"b"], [b"c", b"d"]], True),
        ({"instances": [[], []]}, np.empty((2, 0)), True),
        ({"instances": ["\ud83d\ude00"]}, ["😀".encode()], True),
        (b'\xef\xbb\xbf{"instances": ["\\ud83d\\ude00"]}', ["😀".encode()], True),
    ],
)
def test_requests_of_strings(document, expected, in_rows):
    arrays, rows = decode(document)
    assert rows is in_rows
    assert arrays.keys() == {"text"}
    assert arrays["text"].dtype == object
    assert arrays["text"].tolist() == np.array(expected, object).tolist()


def test_several_inputs():
    for document in (
        {"instances": [{"text": "a", "number": 1}, {"number": 0.5, "text": "b"}]},
        {"inputs": {"text": ["a", "b"], "number": [1, 0.5]}},
    ):
        arrays, _ = decode(document, PAIR)
        assert list(arrays) == ["number", "text"]
        assert arrays["number"].dtype == np.float32
        assert arrays["number"].tolist() == [1, 0.5]
        assert arrays["text"].tolist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "The document is empty"),
        (b"instances = [1, 2]", "JSON Parse error"),
        (b'{"instances": ["a"]', "JSON Parse error"),
        (b'{"instances": ["a"]} x', "JSON Parse error"),
        (b'{"instances": ["\xff"]}', "Invalid UTF-8 at offset 16"),
        (b'{"instances": ["a\nb"]}', "JSON Parse error"),
        (b'{"instances": ["a"], "instances": ["b"]}', 'Duplicate key: "instances"'),
        (b'{"instances": [{"text": "a", "text": "b"}]}', 'Duplicate key: "text"'),
        (b'{"instances": [NaN]}', "Invalid value: NaN"),
        (b'{"x": -Infinity, "instances": ["a"]}', "Invalid value: -Infinity"),
        (b"\xff\xfe{\0}\0", "Invalid UTF-8"),
        (b'{"instances": ' + b"[" * 10**6, "too deeply"),
        (b'{"instances": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "too deeply"),
        (b'{"x": ' + b'{"x":' * 10**5, "too deeply"),
        (b'{"instances": [' + b"9" * 10**5 + b"]}", "JSON Parse error"),
        ([], "a list is not an object"),
        ("text", '"text" is not an object'),
        (None, "null is not an object"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": ["a"], "inputs": ["a"]}, "only one of"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": "a"}, "'instances' must be a list"),
        ({"instances": None}, "'instances' must be a list"),
        ({"instances": [1]}, "1 is not of expected type: string"),
        ({"instances": [None]}, "null is not of expected type: string"),
        ({"instances": [True]}, "true is not of expected type: string"),
        ({"instances": ["a", {"text": "b"}]}, "got object at item 1"),
        ({"instances": [{"text": "a"}, "b"]}, "got value/list at item 1"),
        ({"instances": [{"text": "a"}, {"b64": "YQ=="}]}, "got value/list at item 1"),
        ({"instances": [{}]}, "keys must be equal to: text"),
        ({"instances": [{"text": "a", "more": 1}]}, "keys must be equal to: text"),
        ({"instances": [{"text": {"b64": "YQ==", "x": 1}}]}, "an object is not of expected type"),
        ({"instances": [{"text": {"b64": 1}}]}, "an object is not of expected type"),
        ({"instances": [{"b64": "Y"}]}, "no valid text or base64"),
        ({"instances": [{"b64": "Y Q"}]}, "no valid text or base64"),
        ({"instances": [{"b64": "ä"}]}, "no valid text or base64"),
        ({"instances": ["\ud800"]}, "no valid text or base64"),
        ({"instances": [["a"], ["b", "c"]]}, "of equal length"),
        ({"instances": [["a"], "b"]}, "of equal length"),
        ({"instances": ["a", ["b"]]}, "a list is not of expected type"),
        ({"instances": [[["a"], ["b"]], [["c"], []]]}, "of equal length"),
        ({"inputs": {"more": ["a"]}}, "Missing named input: text"),
        ({"inputs": {}}, "Missing named input: text"),
        ({"inputs": None}, "null is not of expected type"),
    ],
)
def test_requests_that_are_refused(document, message):
    assert message in refused(document)


def test_a_value_without_a_name_needs_a_single_input():
    assert "multiple inputs are required: number,text" in refused({"instances": ["a"]}, PAIR)
    assert "multiple inputs are required: number,text" in refused({"inputs": ["a"]}, PAIR)
    assert "Missing named input: number" in refused({"inputs": {"text": ["a"]}}, PAIR)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int32", [0, -(2**31), 2**31 - 1]),
        ("int64", [-(2**63), 2**63 - 1]),
        ("uint8", [0, 255]),
        ("uint64", [2**64 - 1]),
        ("float32", [0.1, 1, -(2**24) + 1, 3.4028235e38, 1e-50]),  # as the largest is written
        ("float64", [0.1, 2**53 - 1, 1.7976931348623157e308]),
        ("float16", [0.1, 2047, 65504.0]),
        ("bool", [True, False]),
    ],
)
def test_numbers(dtype, values):
    arrays, _ = decode({"instances": values}, {"x": spec(dtype)})
    assert arrays["x"].dtype == dtype
    assert arrays["x"].tolist() == [np.dtype(dtype).type(value) for value in values]


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int32", "1.0", "1.0 is not of expected type: int32"),
        ("int32", "1e2", "not of expected type"),
        ("int32", "true", "true is not of expected type: int32"),
        ("int32", '"1"', "not of expected type"),
        ("int32", "null", "not of expected type"),
        ("int32", '{"b64": "YQ=="}', "not of expected type"),
        ("int32", "2147483648", "out of the range of int32"),
        ("int32", "-2147483649", "out of the range"),
        ("int32", "9" * 4000, "a huge integer is out of the range"),
        ("uint8", "-1", "out of the range"),
        ("float32", "16777216", "16777216 to float32 without loss of precision"),
        ("float32", "9" * 4000, "a huge integer to float32 without loss"),
        ("float32", "3.5e38", "without loss"),
        ("float32", "1e999", "cannot convert Infinity to"),
        ("float32", "-1e999", "without loss"),
        ("float32", "true", "true is not of expected type: float32"),
        ("float32", '"NaN"', "not of expected type"),
        ("float64", "9007199254740993", "without loss"),
        ("bool", "1", "1 is not of expected type: bool"),
        ("bool", '"true"', "not of expected type"),
    ],
)
def test_numbers_that_are_refused(dtype, value, message):
    assert message in refused(f'{{"instances": [{value}]}}'.encode(), {"x": spec(dtype)})


def test_types_without_json():
    with pytest.raises(ServingError, match="no JSON for the type complex64") as caught:
        decode({"instances": [1]}, {"x": spec("complex64")})
    assert caught.value.code == "UNIMPLEMENTED"


def test_signature_name():
    assert rest.signature_name({}) == ""
    assert rest.signature_name({"signature_name": "x"}) == "x"
    for wrong in (None, 1, ["x"]):
        with pytest.raises(ServingError, match="must be a string value"):
            rest.signature_name({"signature_name": wrong})


# === Answers ===


def test_rows_and_columns():
    outputs = {
        "flag": np.array([True, False]),
        "many": np.array([[1, 2], [3, 4]], np.int64),
        "raw_bytes": strings(b"\xff", b""),
        "score": np.array([0.1, -2.5], np.float32),
        "text": strings("ä\u2028\0".encode(), b"\xffa"),
    }
    rows = [
        {"flag": True, "many": [1, 2], "raw_bytes": {"b64": "/w=="}, "score": 0.1, "text": "ä\u2028\0"},
        {"flag": False, "many": [3, 4], "raw_bytes": {"b64": ""}, "score": -2.5, "text": "�a"},
    ]
    assert encode(outputs) == {"predictions": rows}
    assert encode(outputs, in_rows=False) == {"outputs": {name: [row[name] for row in rows] for name in outputs}}


def test_a_single_output_loses_its_name():
    assert encode({"x": np.array([1, 2])}) == {"predictions": [1, 2]}
    assert encode({"x": np.array([1, 2])}, in_rows=False) == {"outputs": [1, 2]}
    assert encode({"x": np.array(3)}, in_rows=False) == {"outputs": 3}
    assert encode({"x_bytes": np.array([[b"a"]], object)}) == {"predictions": [[{"b64": "YQ=="}]]}


def test_no_rows():
    assert encode({"x": np.zeros((0, 3)), "y": strings()}) == {"predictions": []}
    assert encode({"x": np.zeros((0, 3), np.float32), "y": strings()}, False) == {"outputs": {"x": [], "y": []}}


@pytest.mark.parametrize("sizes", [((2,), (3,)), ((2,), ())])
def test_rows_that_do_not_match(sizes):
    outputs = {name: np.zeros(size, np.int32) for name, size in zip("ab", sizes, strict=True)}
    with pytest.raises(ServingError, match="inconsistent batch sizes") as caught:
        rest.encode_response(outputs, True)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert encode(outputs, in_rows=False)["outputs"].keys() == {"a", "b"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_json_has_not(value, dtype):
    with pytest.raises(ServingError, match="`score` holds a number that is not finite") as caught:
        rest.encode_response({"score": np.array([0, value], dtype)}, True)
    assert caught.value.code == "INTERNAL"


def test_short_floats():
    values = np.array([0.2, 1 / 3, 9e6, 3e-5, 1e-45, -0.0, 16777216], np.float32)
    assert rest.encode_response({"x": values}, True) == (
        b'{"predictions": [0.2, 0.33333334, 9000000.0, 3e-05, 1e-45, -0.0, 16777216.0]}\n'
    )


def test_status():
    statuses = [VersionStatus(12, "AVAILABLE"), VersionStatus(3, "END", "INTERNAL", 'a "b"')]
    assert json.loads(rest.status_body(statuses)) == {
        "model_version_status": [
            {"version": "12", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
            {"version": "3", "state": "END", "status": {"error_code": "INTERNAL", "error_message": 'a "b"'}},
        ]
    }


# === Properties ===

NUMBERS = {
    np.int32: st.integers(-(2**31), 2**31 - 1),
    np.uint8: st.integers(0, 255),
    np.bool_: st.booleans(),
    np.float32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    np.float64: st.floats(allow_nan=False, allow_infinity=False),
}


@settings(deadline=None)
@given(data=st.data())
def test_numbers_survive(data):
    dtype = data.draw(st.sampled_from(sorted(NUMBERS, key=str)))
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    size = math.prod(shape)
    array = np.array(data.draw(st.lists(NUMBERS[dtype], min_size=size, max_size=size)), dtype).reshape(shape)
    for in_rows in (True, False):
        answer = encode({"x": array}, in_rows)
        (values,) = answer.values()
        arrays, rows = decode({"instances" if in_rows else "inputs": values}, {"x": spec(dtype)})
        assert rows is in_rows
        assert arrays["x"].dtype == dtype
        assert arrays["x"].tobytes() == array.tobytes()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
def test_bytes_survive(values):
    answer = encode({"x_bytes": strings(*values), "text": strings(*values)})["predictions"]
    assert [base64.b64decode(row["x_bytes"]["b64"], validate=True) for row in answer] == values
    assert [row["text"] for row in answer] == [value.decode("utf-8", "replace") for value in values]
    arrays, _ = decode({"instances": [{"text": row["x_bytes"]} for row in answer]})
    assert arrays["text"].tolist() == values


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_text_survives(values):
    for ensure_ascii in (True, False):
        body = json.dumps({"inputs": values}, ensure_ascii=ensure_ascii)
        arrays, _ = decode(body.encode("utf-8", "surrogatepass"))
        assert encode(arrays, in_rows=False) == {"outputs": values}


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_to_its_bits(value):
    (text,) = encode({"x": np.array([value], np.float32)})["predictions"]
    assert struct.pack("<f", text) == struct.pack("<f", value)
    assert len(repr(text)) <= len(repr(value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "number", "b64", "x"]) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(lambda value: json.dumps({"instances": value}).encode(), JSON),
        st.builds(lambda value: json.dumps({"inputs": value}).encode(), JSON),
    ),
    st.sampled_from([TEXT, PAIR, {"x": spec(np.int32)}]),
)
def test_any_body_is_decoded_or_refused(body, inputs):
    refusal = arrays = None
    try:
        arrays, _ = decode(body, inputs)
    except ServingError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code == "INVALID_ARGUMENT"
        rest.error_body(refusal.message).decode("utf-8")
    else:
        assert arrays.keys() == inputs.keys()
        for name, array in arrays.items():
            assert array.dtype == inputs[name].dtype
            if array.dtype == object:
                assert all(type(value) is bytes for value in array.flat)
