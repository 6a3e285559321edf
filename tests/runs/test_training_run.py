"""A run's directory: made, refused, gone on with. What a whole run does is in tests/recipes/test_train_wmt.py."""

import dataclasses
import json
import subprocess
import sys

import pytest

from keras_transformer.runs.settings import RunSettings
from keras_transformer.runs.training_run import TrainingRun

SETTINGS = RunSettings(train_steps=4, evaluation_steps=2)
CONFIG = {"d_model": 8, "train_steps": 4, "source": None}


def test_a_new_run_has_its_configuration(tmp_path):
    TrainingRun(tmp_path / "a" / "run", SETTINGS).open(CONFIG)
    assert json.loads((tmp_path / "a" / "run" / "config.json").read_text("utf-8")) == CONFIG


def test_a_run_is_not_overwritten_unasked(tmp_path):
    run = TrainingRun(tmp_path, SETTINGS)
    run.open(CONFIG)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(FileExistsError, match=r"not empty: pass --resume"):
        run.open(CONFIG)
    assert (tmp_path / "checkpoints").exists()
    run.open({**CONFIG, "d_model": 16}, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_only_runs_are_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", "utf-8")
    with pytest.raises(FileExistsError, match="deletes runs only"):
        TrainingRun(tmp_path, SETTINGS).open(CONFIG, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_resuming_needs_the_same_settings(tmp_path):
    run = TrainingRun(tmp_path, SETTINGS)
    with pytest.raises(FileNotFoundError, match="--resume needs a run"):
        run.open(CONFIG, resume=True)
    run.open(CONFIG)
    with pytest.raises(ValueError, match=r"only train_steps may change\): d_model was 8, now 16"):
        run.open({**CONFIG, "d_model": 16}, resume=True)
    run.open({**CONFIG, "train_steps": 8}, resume=True)
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["train_steps"] == 8
    younger = {**CONFIG, "train_steps": 8, "schedule": "cosine"}
    with pytest.raises(ValueError, match="schedule was 'constant', now 'cosine'"):
        run.open(younger, resume=True, defaults={"schedule": "constant"})
    run.open(younger, resume=True, defaults={"schedule": "cosine"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_steps": 5}, "train_steps must be a multiple of evaluation_steps"),
        ({"train_steps": 0}, "train_steps must be positive. Received: 0"),
        ({"early_stopping": 0}, "early_stopping must be positive"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds must be positive. Received: -1.0"),
        ({"checkpoints_to_keep": 4}, "average_checkpoints must not exceed checkpoints_to_keep. Received: 5 of 4"),
        ({"average": "best"}, "average_checkpoints must not exceed best_checkpoints_to_keep. Received: 5 of 0"),
        ({"average_momentum": 1.0}, "average_momentum must be between 0 and 1"),
    ],
)
def test_settings_that_cannot_work(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        TrainingRun(tmp_path, dataclasses.replace(SETTINGS, **changes))


def test_what_is_better():
    assert RunSettings(monitor="val_bleu").monitor_mode == "max"
    assert RunSettings(monitor="val_loss").monitor_mode == "min"


def test_a_run_that_never_trained_is_begun_anew(tmp_path):
    TrainingRun(tmp_path, SETTINGS).open(CONFIG)
    (tmp_path / "tokens").mkdir()
    TrainingRun(tmp_path, SETTINGS).open(CONFIG)
    assert (tmp_path / "tokens").exists()  # of the same settings
    TrainingRun(tmp_path, SETTINGS).open({**CONFIG, "d_model": 16})
    assert not (tmp_path / "tokens").exists()
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["d_model"] == 16


def test_a_refused_start_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run"):
        TrainingRun(tmp_path / "run", SETTINGS).open(CONFIG, resume=True)
    assert not list(tmp_path.iterdir())


OWNER = """
import sys
from keras_transformer.files import FolderLock
lock = FolderLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_one_process_owns_a_run_until_it_ends_however_it_ends(tmp_path):
    TrainingRun(tmp_path, SETTINGS).open(CONFIG)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout.readline() == "locked\n"
        for arguments in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(BlockingIOError, match=f"{tmp_path} belongs to another process"):
                TrainingRun(tmp_path, SETTINGS).open(CONFIG, **arguments)
        owner.kill()
    with TrainingRun(tmp_path, SETTINGS) as run:
        run.open(CONFIG, resume=True)
        with pytest.raises(BlockingIOError):
            TrainingRun(tmp_path, SETTINGS).open(CONFIG, resume=True)
    TrainingRun(tmp_path, SETTINGS).open(CONFIG, resume=True)


@pytest.mark.parametrize("config", [{"train_steps": 4}, {"hidden_size": 8}])
def test_a_folder_that_holds_more_than_a_prepared_run_is_not_emptied_unasked(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    if "train_steps" in config:
        (tmp_path / "model.safetensors").write_text("days of work", "utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(FileExistsError, match="not empty: pass --resume"):
        TrainingRun(tmp_path, SETTINGS).open(CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
