"""The public names: one table, imported when they are asked for, and known to Keras in time."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt


@pytest.mark.parametrize("name", kt.__all__)
def test_every_public_name_is_where_the_table_says(name):
    value = getattr(kt, name)
    assert value.__module__ == f"keras_transformer.{kt._HOMES[name]}"
    assert value.__doc__
    assert name in dir(kt)


def test_a_name_that_is_none():
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        _ = kt.Transfomer


def test_importing_costs_nothing():
    heavy = "{'keras', 'tensorflow', 'numpy', 'sentencepiece', 'tyro'}"
    code = f"import sys, keras_transformer; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """A file with a model, a schedule, a loss and a metric of ours."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model = kt.Transformer.from_preset("tiny", 300, num_encoder_layers=1, num_decoder_layers=1)
    model.compile(kt.Adam(kt.CosineSchedule(1e-3, 10)), kt.LabelSmoothedCrossEntropy(), metrics=[kt.Perplexity()])
    ids = np.ones((2, 3), "int32")
    model.train_on_batch({"source_ids": ids, "target_ids": ids}, ids)
    model.save(path)
    assert isinstance(keras.saving.load_model(path), kt.Transformer)
    return path


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, keras_transformer",
        "import keras_transformer, keras",
        pytest.param("import keras; from keras_transformer.masks import padding_mask", marks=pytest.mark.slow),
        pytest.param("from keras_transformer.masks import padding_mask; import keras", marks=pytest.mark.slow),
        "from keras_transformer.layers import Encoder; import keras",
        pytest.param("from keras_transformer import Encoder; import keras", marks=pytest.mark.slow),
        pytest.param(
            "from keras_transformer.training.losses import LabelSmoothedCrossEntropy; import keras",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_keras_loads_a_model_when_the_package_is_imported_and_nothing_else(imports, saved_model):
    code = f"{imports}; model = keras.saving.load_model(sys.argv[1], safe_mode=True); print(type(model).__name__, "
    code += "type(model.optimizer._learning_rate).__name__, type(model.loss).__name__)"
    command = [sys.executable, "-c", "import sys; " + code, str(saved_model)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["Transformer", "CosineSchedule", "LabelSmoothedCrossEntropy"], done.stderr
