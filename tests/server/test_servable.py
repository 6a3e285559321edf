"""One loaded version: answers, checks, status codes, time limits, warm-up."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.server.servable import Servable, ServingError


@pytest.fixture(scope="module")
def servable(toy):
    servable = Servable(toy / "7")
    yield servable
    servable.close()


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_signatures(servable):
    assert servable.version == 7
    assert list(servable.signatures) == sorted(
        "serving_default greeting letters picky slow pair total mean_of_all inverse".split()
    )
    pair = servable.signature("pair")
    assert {name: (spec.dtype, spec.shape) for name, spec in pair.inputs.items()} == {
        "name": (np.dtype(object), (None,)),
        "weight": (np.dtype(np.float32), (None,)),
    }
    assert servable.signature("total").inputs["ids"].shape == (None, None)
    assert servable.signature("") is servable.signature("serving_default")
    assert servable.signature_defs["pair"].inputs["name"].dtype == tf.string.as_datatype_enum
    with pytest.raises(ServingError, match='"nothing" not found') as caught:
        servable.signature("nothing")
    assert caught.value.code == "FAILED_PRECONDITION"


def test_answers_are_those_of_the_functions(servable, toy):
    """The TF1 loader and session give what the TF2 loader gives."""
    texts = ["", "abc\0", "Grüße", "a text of some length"]
    functions = tf.saved_model.load(str(toy / "7")).signatures
    for name in ("serving_default", "letters"):
        outputs = servable.run(name, {"text": strings(*(text.encode() for text in texts))})
        expected = functions[name](text=tf.constant(texts))
        assert outputs.keys() == expected.keys()
        for key, value in expected.items():
            assert outputs[key].dtype == value.numpy().dtype
            np.testing.assert_array_equal(outputs[key], value.numpy())


def test_bytes_stay_bytes(servable):
    values = [b"", b"\0", b"a\0\0", b"\xff\xfe", bytes(range(256))]
    outputs = servable.run("serving_default", {"text": strings(*values)})
    assert outputs["raw_bytes"].dtype == object
    assert outputs["raw_bytes"].tolist() == values
    assert outputs["length"].tolist() == [0, 1, 3, 2, 256]
    assert servable.run("serving_default", {"text": strings()})["raw_bytes"].shape == (0,)


def test_output_of_rank_0(servable):
    mean = servable.run("mean_of_all", {"ids": np.array([1, 2], np.int32)})["mean"]
    assert mean.shape == ()
    assert mean == 1.5


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("pair", {}, r"Sent extra: \{\}. Missing but required: \{name,weight\}"),
        ("serving_default", {"text": strings(b"a"), "x": strings()}, r"Sent extra: \{x\}. Missing but required: \{\}"),
        ("serving_default", {"text": np.array([b"a"])}, r"`text` must be string. Received: \|S1"),
        ("serving_default", {"text": np.array([1])}, "`text` must be string. Received: int64"),
        ("serving_default", {"text": np.array(b"a", object)}, r"shape \[\?\]. Received: \[\]"),
        ("total", {"ids": np.array([1], np.int32)}, r"shape \[\?,\?\]. Received: \[1\]"),
        ("total", {"ids": np.array([[1.0]])}, "`ids` must be int32. Received: float64"),
        ("pair", {"name": strings(b"a"), "weight": np.zeros(2, np.float32)}, "same number of rows"),
    ],
)
def test_inputs_that_do_not_fit(servable, signature, inputs, message):
    with pytest.raises(ServingError, match=message) as caught:
        servable.signature(signature).check(inputs)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_operations_that_fail(servable):
    with pytest.raises(ServingError, match="a row must not be bad") as caught:
        servable.run("picky", {"text": strings(b"good", b"bad")})
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "Traceback" not in caught.value.message
    assert servable.run("picky", {"text": strings(b"good")})["same"].tolist() == [b"good"]


def test_time_limit_stops_the_run(servable):
    endless = np.array([2**31 - 1], np.int32)
    with pytest.raises(ServingError) as caught:  # else it would run for hours
        servable.run("slow", {"steps": endless}, timeout=0.1)
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert servable.run("slow", {"steps": np.array([3], np.int32)}, timeout=300)["steps"].tolist() == [3]


@pytest.mark.parametrize("damage", ["missing", "graph", "variables"])
def test_folders_that_cannot_be_loaded(toy, tmp_path, damage):
    path = tmp_path / "3"
    if damage != "missing":
        shutil.copytree(toy / "7", path)
        if damage == "graph":
            (path / "saved_model.pb").write_bytes(b"\xff" * 100)
        else:
            shutil.rmtree(path / "variables")
            (path / "variables").mkdir()
            (path / "variables/variables.index").write_bytes(b"no index")
    with pytest.raises(ServingError, match=f"Cannot load {path}: "):
        Servable(path)


def test_a_moved_folder(toy, tmp_path):
    path = tmp_path / "a b" / "Übersetzer" / "12"
    shutil.copytree(toy / "7", path)
    servable = Servable(path)
    assert servable.version == 12
    assert servable.run("greeting", {"text": strings(b"you")})["greeting"].tolist() == [b"hello you"]
    servable.close()


def test_warm_up(write_toy_model, tmp_path):
    path = tmp_path / "1"
    write_toy_model(path, warm_up=[("", {"text": ["a\0", "b"]}), ("total", {"ids": [[1, 2]]})])
    ran = []

    class Recording(Servable):
        def run(self, signature_name, inputs, timeout=None):
            ran.append((signature_name, {name: array.tolist() for name, array in inputs.items()}))
            return super().run(signature_name, inputs, timeout)

    servable = Recording(path)
    assert servable.warm_up() == 2
    assert ran == [("serving_default", {"text": [b"a\0", b"b"]}), ("total", {"ids": [[1, 2]]})]
    servable.close()


def test_no_warm_up(servable):
    assert servable.warm_up() == 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("picky", {"text": ["bad"]}), "a row must not be bad"),
        (("nothing", {"text": ["a"]}), '"nothing" not found'),
        (("total", {"ids": [1]}), "must have the shape"),
    ],
)
def test_warm_up_that_fails(write_toy_model, tmp_path, request_, message):
    write_toy_model(tmp_path / "1", warm_up=[("", {"text": ["a"]}), request_])
    servable = Servable(tmp_path / "1")
    with pytest.raises(ServingError, match=f"(?s)Warm-up request 2 of .*{message}"):
        servable.warm_up()
    servable.close()


def test_code_of_an_error():
    with pytest.raises(ValueError, match="Received: WRONG"):
        ServingError("WRONG", "")
