"""TensorFlow Serving's REST API as pure functions: bodies of requests to arrays, arrays to bodies of answers.

A request is `{"signature_name": ..., "instances": [row, ...]}`, where a row is a value or, by the names of all inputs,
an object of values; or `{"signature_name": ..., "inputs": value or object of values}`, where a value holds all rows.
The answer is `{"predictions": [row, ...]}` or `{"outputs": value or object of values}`; the name of a single output is
left out. `{"b64": "..."}` stands for a string of any bytes, in requests, and in answers in outputs whose names end in
`_bytes`.

JSON is strict on both sides: UTF-8, no NaN or infinity, no key twice. Like TensorFlow Serving, integers are taken for
floats if they are exact, floats never for integers, and keys that are not asked for are ignored but in rows.
"""

import base64
import binascii
import json

import numpy as np
from google.protobuf import json_format

from keras_transformer.server.servable import ServingError, dtype_name

# TensorFlow Serving's HTTP status for each status code.
HTTP_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
_BASE64_KEY = "b64"
_BYTES_SUFFIX = "_bytes"
# Characters of a client's own words that an error repeats.
_MAX_SHOWN = 80


# === Requests ===


def parse_request(body):
    """Return the object that the body of a request must be.

    Args:
        body: bytes.

    Returns:
        Dictionary.

    Raises:
        ServingError: INVALID_ARGUMENT, also if it is nested too deeply.
    """
    if not body:
        raise _invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _invalid(
            f'JSON Parse error: Invalid UTF-8 at offset {error.start}; other bytes must be sent as {{"b64": ...}}'
        ) from None
    except RecursionError:
        raise _invalid("JSON Parse error: Nested too deeply") from None
    except ValueError as error:
        raise _invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise _invalid(f"JSON Value: {_shown(document)} is not an object")
    return document


def signature_name(document):
    """Return the name of the signature that a request asks for; empty if it leaves that out."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise _invalid(f"'signature_name' key must be a string value. Received: {_shown(name)}")
    return name


def decode_request(document, inputs):
    """Return the arrays of a request to predict.

    Args:
        document: what `parse_request` gives.
        inputs: by name, the `TensorSpec` of each input of the signature.

    Returns:
        Dictionary of arrays by name, and whether the request is in rows, as the answer is to be.

    Raises:
        ServingError: INVALID_ARGUMENT if the values do not have the types of the inputs, or form no tensor.
    """
    if "instances" in document and "inputs" in document:
        raise _invalid("Not formatted correctly: only one of the keys 'inputs' and 'instances' may exist")
    if "instances" in document:
        rows = document["instances"]
        if not isinstance(rows, list):
            raise _invalid(f"'instances' must be a list. Received: {_shown(rows)}")
        if not rows:
            raise _invalid("No values in 'instances' array")
        columns = _columns(rows, inputs)
    elif "inputs" in document:
        columns = document["inputs"]
        if not _is_named(columns):
            columns = {_only_name(inputs, "inputs"): columns}
        for name in inputs:
            if name not in columns:
                raise _invalid(f"Missing named input: {name} in 'inputs' object.")
    else:
        raise _invalid("Missing 'inputs' or 'instances' key")
    return {name: _array(columns[name], name, spec) for name, spec in inputs.items()}, "instances" in document


def _columns(rows, inputs):
    if not _is_named(rows[0]):
        for index, row in enumerate(rows):
            if _is_named(row):
                raise _invalid(f"Expecting value/list but got object at item {index} of input list")
        return {_only_name(inputs, "instances"): rows}
    for index, row in enumerate(rows):
        if not _is_named(row):
            raise _invalid(f"Expecting object but got value/list at item {index} of input list")
        if row.keys() != inputs.keys():
            raise _invalid(
                f"Failed to process element: {index} of 'instances' list. "
                f"Its keys must be equal to: {','.join(inputs)}. Received: {_shown(','.join(row))}"
            )
    return {name: [row[name] for row in rows] for name in inputs}


def _array(value, name, spec):
    """Return an array of a value: lists of lists of equal lengths, with leaves of the one type."""
    shape, leaves = [], [value]
    # Level by level: a body can be nested more deeply than Python likes to recurse.
    while leaves and isinstance(leaves[0], list):
        size = len(leaves[0])
        for item in leaves:
            if not isinstance(item, list) or len(item) != size:
                raise _invalid(f"Input `{name}`: all lists of a level must be of equal length")
        shape.append(size)
        leaves = [leaf for item in leaves for leaf in item]
    if spec.dtype.kind == "O":
        array = np.empty(len(leaves), object)
        array[:] = [_bytes(leaf, name, spec) for leaf in leaves]
    else:
        array = _numbers(leaves, name, spec)
    return array.reshape(shape)


def _bytes(leaf, name, spec):
    try:
        if type(leaf) is str:
            return leaf.encode("utf-8")
        if _is_base64(leaf):
            text = leaf[_BASE64_KEY].encode("ascii")
            return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _invalid(f"Input `{name}`: {_shown(leaf)} is no valid text or base64") from None
    raise _type_error(leaf, name, spec)


def _numbers(leaves, name, spec):
    kind = spec.dtype.kind
    if kind not in "fiub":
        raise ServingError("UNIMPLEMENTED", f"Input `{name}`: no JSON for the type {dtype_name(spec)}")
    types = {"f": (float, int), "b": (bool,)}.get(kind, (int,))
    smallest = largest = None
    if kind in "iu":
        smallest, largest = int(np.iinfo(spec.dtype).min), int(np.iinfo(spec.dtype).max)
    elif kind == "f":
        largest = 2 ** (np.finfo(spec.dtype).nmant + 1) - 1  # of the integers that are exact
        smallest = -largest
    for leaf in leaves:
        if type(leaf) not in types:  # `isinstance` would take True for an integer
            raise _type_error(leaf, name, spec)
        if type(leaf) is int and not smallest <= leaf <= largest:
            if kind == "f":
                raise _lossy(leaf, name, spec)
            raise _invalid(f"Input `{name}`: {_shown(leaf)} is out of the range of {dtype_name(spec)}")
    with np.errstate(over="ignore"):
        array = np.array(leaves, spec.dtype)
    if kind == "f" and not np.isfinite(array).all():
        raise _lossy(leaves[int(np.argmin(np.isfinite(array)))], name, spec)
    return array


def _lossy(leaf, name, spec):
    return _invalid(f"Input `{name}`: cannot convert {_shown(leaf)} to {dtype_name(spec)} without loss of precision.")


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {_BASE64_KEY} and isinstance(value[_BASE64_KEY], str)


def _is_named(value):
    return isinstance(value, dict) and not _is_base64(value)


def _only_name(inputs, key):
    if len(inputs) != 1:
        raise _invalid(
            f"'{key}' is a plain value/list, but expecting named values as multiple inputs are required: "
            f"{','.join(inputs)}"
        )
    return next(iter(inputs))


def _unique_keys(pairs):
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"Duplicate key: {_shown(next(name for name in names if names.count(name) > 1))}")
    return document


def _refuse_constant(text):
    raise ValueError(f"Invalid value: {text}")


def _shown(value):
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    if type(value) is int and abs(value) >= 10**_MAX_SHOWN:
        return "a huge integer"  # Python refuses to print the largest
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _type_error(leaf, name, spec):
    return _invalid(f"Input `{name}`: JSON Value: {_shown(leaf)} is not of expected type: {dtype_name(spec)}")


def _invalid(message):
    return ServingError("INVALID_ARGUMENT", message)


# === Answers ===


def encode_response(outputs, in_rows):
    """Return the body of the answer to a request to predict.

    Args:
        outputs: arrays by name; strings as arrays of objects, which are bytes.
        in_rows: whether the request came in rows.

    Returns:
        Bytes. Strings that are not UTF-8 have U+FFFD in place of what is not.

    Raises:
        ServingError: INTERNAL if a number is not finite, which JSON cannot say; INVALID_ARGUMENT if there is no row of
            an output for each row of the others.
    """
    if in_rows:
        sizes = {name: len(array) if array.ndim else None for name, array in outputs.items()}
        if None in sizes.values() or len(set(sizes.values())) > 1:
            raise _invalid(f"Outputs have inconsistent batch sizes; ask with 'inputs'. Received: {sizes}")
    values = {name: _json_value(name, array) for name, array in outputs.items()}
    if len(values) == 1:
        (content,) = values.values()
    elif in_rows:
        content = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    else:
        content = values
    return to_json({"predictions" if in_rows else "outputs": content})


def error_body(message):
    """Return the body of an answer that is an error."""
    # Half of a surrogate pair, which an escape in a request can bring here, is no text.
    return to_json({"error": message.encode("utf-8", "replace").decode("utf-8")})


def status_body(statuses):
    """Return the body of a model's status, of a list of `VersionStatus`."""
    return to_json(
        {
            "model_version_status": [
                {
                    "version": str(status.version),
                    "state": status.state,
                    "status": {"error_code": status.code, "error_message": status.message},
                }
                for status in statuses
            ]
        }
    )


def metadata_body(name, servable):
    """Return the body of a model's metadata: its signatures in the JSON form of `SignatureDef` messages."""
    signatures = {
        signature: json_format.MessageToDict(
            proto, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for signature, proto in servable.signature_defs.items()
    }
    return to_json(
        {
            "model_spec": {"name": name, "signature_name": "", "version": str(servable.version)},
            "metadata": {"signature_def": {"signature_def": signatures}},
        }
    )


def to_json(value):
    """Return strict JSON in UTF-8, and a line end."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def _json_value(name, array):
    kind = array.dtype.kind
    if kind == "O":
        encode = _base64 if name.endswith(_BYTES_SUFFIX) else _text
        return np.array([encode(value) for value in array.flat], object).reshape(array.shape).tolist()
    if kind in "iub":
        return array.tolist()
    if kind != "f":
        raise ServingError("UNIMPLEMENTED", f"Output `{name}`: no JSON for the type {array.dtype}")
    if not np.isfinite(array).all():
        raise ServingError("INTERNAL", f"Output `{name}` holds a number that is not finite, which JSON cannot say")
    if array.dtype != np.float64:
        # By way of the shortest text: 0.1 of 32 bits is to be written as 0.1, not as 0.10000000149011612.
        array = array.astype(str).astype(np.float64)
    return array.tolist()


def _text(value):
    return value.decode("utf-8", "replace")


def _base64(value):
    return {_BASE64_KEY: base64.b64encode(value).decode("ascii")}
