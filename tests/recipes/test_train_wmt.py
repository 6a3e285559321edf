"""The recipe as its users run it: bad settings and bad text refused early, small runs to the end, kill and resume."""

import dataclasses
import gzip
import importlib.util
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import train_wmt_flags
from builtin_corpus.corpus import BuiltinCorpus

from keras_transformer.presets import PRESETS
from keras_transformer.runs.training_run import TrainingRun
from keras_transformer.transformer import Transformer

RECIPE = Path(__file__).parents[2] / "recipes" / "train_wmt.py"


@pytest.fixture(scope="module")
def recipe():
    specification = importlib.util.spec_from_file_location("train_wmt", RECIPE)
    module = importlib.util.module_from_spec(specification)
    sys.modules["train_wmt"] = module  # tyro looks the source up to find the help texts
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two aligned files, the target compressed, with one blank pair, one half pair and one line of invalid UTF-8."""
    folder = tmp_path_factory.mktemp("text")
    pairs = [(s.encode(), t.encode()) for s, t in BuiltinCorpus("train", num_pairs=400)]
    pairs[10:10] = [(b"", b""), (b"Hello.", b""), (b"caf\xe9", b"Kaffee")]
    (folder / "train.en").write_bytes(b"".join(s + b"\n" for s, _ in pairs))
    with gzip.open(folder / "train.de.gz", "wb") as file:
        file.write(b"".join(t + b"\n" for _, t in pairs))
    return folder


def small(text, run, *more):
    flags = f"""--source {text / "train.en"} --target {text / "train.de.gz"} --run-directory {run}
        --vocabulary-size 500 --num-encoder-layers 1 --num-decoder-layers 1 --d-model 32 --num-heads 2
        --feed-forward-dim 32 --train-steps 4 --evaluation-steps 2 --tokens-per-batch 512 --dev-bleu-sentences 4
        --warmup-steps 10 --average-checkpoints 2 --max-extra-tokens 3"""
    return [*flags.split(), *more]


@pytest.mark.parametrize(("flags", "preset"), [([], "demo"), (["--source", "a", "--target", "b"], "tiny")])
def test_default_presets(recipe, flags, preset):
    config = recipe.parse_config(flags)
    assert config.preset == preset
    assert {name: getattr(config, name) for name in PRESETS["tiny"]} == PRESETS["tiny"]
    recipe.check_config(config)


def test_presets_set_the_defaults_and_flags_win(recipe):
    base = recipe.parse_config(["--preset", "base"])
    assert (base.d_model, base.vocabulary_size, base.warmup_steps, base.train_steps) == (512, 37_000, 4_000, 100_000)
    assert (base.tokens_per_batch, base.average_checkpoints, base.norm_first) == (25_000, 5, False)
    big = recipe.parse_config(["--preset=big", "--dropout", "0.1"])
    assert (big.d_model, big.dropout, big.train_steps, big.average_checkpoints) == (1024, 0.1, 300_000, 20)
    for preset in PRESETS:
        recipe.check_config(recipe.preset_config(preset))


def test_defaults_of_the_base_preset_are_those_of_the_model(recipe):
    base = recipe.preset_config("base")
    parameters = inspect.signature(Transformer).parameters
    assert {name: getattr(base, name) for name in recipe.MODEL_FIELDS} == {
        name: parameters[name].default for name in recipe.MODEL_FIELDS
    }


def test_every_flag_is_explained(recipe, capsys):
    with pytest.raises(SystemExit) as stop:
        recipe.parse_config(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name in train_wmt_flags.Config.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in text
    assert text.count("(default:") >= len(train_wmt_flags.Config.__dataclass_fields__)


def test_flags_stand_in_groups(recipe, capsys):
    with pytest.raises(SystemExit):
        recipe.parse_config(["--help"])
    text = capsys.readouterr().out
    for group in ("run", "text", "tokens", "model", "training", "evaluation", "decoding"):
        assert f" {group} options " in text


@pytest.mark.parametrize(("flag", "status"), [("--help", 0), ("--version", 0), ("--perset", 2)])
def test_help_and_a_typo_do_not_wait_for_tensorflow(flag, status):
    code = "import runpy, sys\nsys.argv[:] = sys.argv[1:]\n"
    code += "sys.path.insert(0, str(__import__('pathlib').Path(sys.argv[0]).parent))\n"
    code += "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    code += "finally:\n    assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(RECIPE), flag], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert "AssertionError" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--source", "a"], "source and target go together"),
        (["--source", "a", "--target", "b", "--dataset", "c"], "source and target exclude dataset"),
        (["--test-source", "a", "--test-target", "b"], "need training text"),
        (["--train-steps", "0"], "train_steps must be positive. Received: 0"),
        (["--train-steps", "30", "--evaluation-steps", "20"], "train_steps=30, evaluation_steps=20"),
        (["--average-checkpoints", "11", "--checkpoints-to-keep", "10"], "Received: 11 of 10"),
        (["--d-model", "130"], "d_model must be divisible by num_heads.*d_model=130, num_heads=4"),
        (["--tokens-per-batch", "100"], "tokens_per_batch must hold one sentence.*tokens_per_batch=100"),
        (["--batch-shapes", "0"], "batch_shapes must be positive. Received: 0"),
        (["--reduction", "one-device"], "reduction needs a strategy with replicas. Received: reduction=one-device"),
        (
            ["--strategy", "multi-worker", "--checkpoint-seconds", "600"],
            "checkpoint_seconds is not for several workers.*checkpoint_seconds=600.0, strategy=multi-worker",
        ),
        (["--max-skipped-steps", "0"], "max_skipped_steps must be positive. Received: 0"),
        (["--schedule", "cosine", "--final-fraction", "1.5"], "final_fraction must be between 0 and 1. Received: 1.5"),
        (["--final-fraction", "0.1"], "final_fraction goes with a cosine. Received: schedule=inverse-square-root"),
        (["--positions", "learned"], "max_length goes with learned positions"),
        (["--positions", "learned", "--max-length", "20"], "max_sentence_tokens must not exceed max_length"),
    ],
)
def test_settings_that_cannot_work_are_refused(recipe, flags, message):
    with pytest.raises(ValueError, match=message):
        refuse(recipe, flags)


def refuse(recipe, flags):
    """All that the recipe does before it reads text."""
    config = recipe.parse_config(flags)
    recipe.check_config(config)
    recipe.try_parts(config)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--activation", "rely"], "activation.*rely"),
        (["--dropout", "1.5"], r"rate must be in \[0, 1\). Received: rate=1.5"),
        (["--label-smoothing", "-1"], "label_smoothing"),
        (["--beam-size", "0"], "beam_size must be positive. Received: beam_size=0"),
        (["--num-encoder-layers", "0"], "num_layers must be positive"),
        (["--warmup-steps", "0"], "warmup_steps"),
        (["--preset", "base", "--warmup-steps", "0"], "warmup_steps"),
    ],
)
def test_what_a_part_refuses_is_refused_before_text_is_read(recipe, flags, message):
    with pytest.raises(ValueError, match=message):
        refuse(recipe, flags)


def test_a_score_that_cannot_be_computed_is_refused_before_text_is_read(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(ImportError, match=r"sacrebleu\[ja\]"):
        refuse(recipe, ["--target-language", "ja"])


def test_an_init_from_without_a_model_is_refused(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"a trained model must be a run directory.*'{tmp_path}'"):
        recipe.check_config(recipe.parse_config(["--init-from", str(tmp_path)]))
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"must hold a translator\.json"):
        recipe.check_config(recipe.parse_config(["--init-from", str(tmp_path)]))


def test_an_init_from_with_too_few_learned_positions_is_refused(recipe, tmp_path):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "feed_forward_dim": 8}
    Transformer(10, **sizes, positions="learned", max_length=16).save(tmp_path / "model.keras")
    config = recipe.parse_config(["--init-from", str(tmp_path), "--max-sentence-tokens", "17"])
    with pytest.raises(ValueError, match=r"the learned positions of the model of init_from, 16\. Received: .*=17"):
        recipe.build_model(config, 10)


@pytest.mark.parametrize("flags", [[], ["--schedule", "cosine", "--final-fraction", "0.25"]])
def test_flags_of_the_schedule_and_of_skipping_reach_the_training(recipe, flags):
    sizes = ["--d-model", "8", "--num-heads", "2", "--feed-forward-dim", "8", "--num-encoder-layers", "1"]
    config = recipe.parse_config([*sizes, "--max-skipped-steps", "7", "--peak-learning-rate", "2", *flags])
    recipe.check_config(config)
    model, training = recipe.build_model(config, 300)
    assert training.max_skipped_steps == 7
    final = float(recipe.learning_rate_schedule(config, model)(config.train_steps - 1))
    assert final == pytest.approx(0.5 if flags else 2 * (config.warmup_steps / config.train_steps) ** 0.5)


def test_an_unknown_flag_or_preset_is_refused(recipe):
    for flags in (["--no-such-flag", "1"], ["--preset", "huge"], ["--train-steps", "many"]):
        with pytest.raises(SystemExit):
            recipe.parse_config(flags)


def test_bad_text_is_refused_before_a_run_is_made(recipe, text, tmp_path):
    short = tmp_path / "short.de"
    short.write_text("Hallo.\n", "utf-8")
    run = tmp_path / "run"
    with pytest.raises(ValueError, match=r"same number of lines.*403 lines.*1 lines"):
        recipe.main(small(text, run, "--target", str(short)))
    with pytest.raises(FileNotFoundError, match="target must be a text file"):
        recipe.main(small(text, run, "--target", str(tmp_path / "missing")))
    assert not run.exists()


def test_an_empty_set_to_score_is_refused(recipe, text, tmp_path):
    few = tmp_path / "few.en"
    few.write_text("One.\nTwo.\n", "utf-8")
    flags = ("--source", str(few), "--target", str(few))
    with pytest.raises(ValueError, match=r"The dev set must hold a pair\. Received: none"):
        recipe.main(small(text, tmp_path / "run", *flags))
    dev = ("--dev-source", str(few), "--dev-target", str(few))
    with pytest.raises(
        ValueError, match=r"The test set must hold a pair\. Received: none"
    ):  # the start before is no run
        recipe.main(small(text, tmp_path / "run", *flags, *dev))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json"]


def test_a_run_to_the_end_and_what_may_follow(recipe, text, tmp_path, capfd):
    run = tmp_path / "run"
    results = recipe.main(small(text, run))
    printed = capfd.readouterr().out
    for fault in ("both sides empty (row 11)", "one side empty (row 12)", "invalid UTF-8 (row 13)"):
        assert f"dropped 1: {fault}" in printed
    assert results["test_bleu_signature"] in printed
    assert f"python -m keras_transformer translate --model {run / 'export' / '1'}" in printed
    assert json.loads((run / "results.json").read_text("utf-8")) == results
    assert (run / "export" / "1" / "saved_model.pb").is_file()
    description = json.loads((run / "export" / "1" / "translator.json").read_text("utf-8"))
    assert description["evaluation"]["test_bleu"] == json.loads((run / "results.json").read_text("utf-8"))["test_bleu"]
    assert description["training"]["train_steps"] > 0
    assert (run / "report.png").read_bytes().startswith(b"\x89PNG")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [record["step"] for record in records] == [2, 4]
    names = {"loss", "val_loss", "val_bleu", "val_chrf", "target_tokens_per_second", "target_padding_share"}
    assert all(names <= set(record) for record in records)
    assert list((run / "logs" / "validation").glob("events.*"))

    assert recipe.parse_config(["--resume", "--run-directory", str(run)]) == dataclasses.replace(
        recipe.parse_config(small(text, run)), resume=True
    )
    with pytest.raises(ValueError, match="train_steps=2, a run at step 4"):
        recipe.main(["--resume", "--run-directory", str(run), "--train-steps", "2"])
    with pytest.raises(FileExistsError, match="--resume"):
        recipe.main(small(text, run))
    with pytest.raises(ValueError, match="d_model was 32, now 64"):
        recipe.main(small(text, run, "--resume", "--d-model", "64"))
    with pytest.raises(FileNotFoundError, match="--resume needs a run"):
        recipe.main(small(text, tmp_path / "none", "--resume"))
    saved = json.loads((run / "config.json").read_text("utf-8"))
    del saved["batch_shapes"]  # as written before there was such a flag
    (run / "config.json").write_text(json.dumps(saved), "utf-8")
    with pytest.raises(ValueError, match="batch_shapes was None, now 4"):
        open_run(recipe, small(text, run, "--resume", "--batch-shapes", "4"))
    open_run(recipe, small(text, run, "--resume"))
    assert "batch_shapes" in json.loads((run / "config.json").read_text("utf-8"))
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work", "utf-8")
    with pytest.raises(FileExistsError, match="deletes runs only"):
        recipe.main(small(text, precious, "--overwrite"))


def open_run(recipe, flags):
    config = recipe.parse_config(flags)
    with TrainingRun(config.run_directory, config) as run:
        recipe.open_run(config, run)


@pytest.mark.slow
def test_fine_tuning_keeps_tokenizer_model_and_frozen_parts(recipe, text, tmp_path, capfd):
    first, second, origin = tmp_path / "first", tmp_path / "second", tmp_path / "export"
    recipe.main(small(text, first))
    (first / "export").rename(origin)  # it needs nothing of its run
    flags = ("--init-from", str(origin), "--freeze", "encoder", "--d-model", "64", "--schedule", "constant")
    more = (
        "--average",
        "best",
        "--best-checkpoints-to-keep",
        "1",
        "--average-checkpoints",
        "1",
        "--monitor",
        "val_loss",
    )
    recipe.main(small(text, second, *flags, *more, "--peak-learning-rate", "0.01"))
    printed = capfd.readouterr().out
    assert f"Beginning with {origin / '1'}, whose weights are stored as float32" in printed
    assert "Frozen: encoder/" in printed
    assert (first / "tokenizer.model").read_bytes() == (second / "tokenizer.model").read_bytes()
    models = [keras.saving.load_model(run / "model.keras", compile=False) for run in (first, second)]
    assert models[0].get_config()["d_model"] == models[1].get_config()["d_model"] == 32
    moved = {
        one.path: not np.array_equal(one, other)
        for one, other in zip(models[0].weights, models[1].weights, strict=True)
        if "seed_generator" not in one.path
    }
    assert not any(differs for path, differs in moved.items() if path.startswith("encoder/"))
    assert all(differs for path, differs in moved.items() if path.startswith("decoder/") and path.endswith("kernel"))


TWO = ["--strategy", "mirrored", "--reduction", "one-device"]
ON_TWO_DEVICES = """
import runpy, sys
import tensorflow as tf
devices = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * 2)
sys.path.insert(0, FOLDER)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_replicas_and_micro_batches_give_the_numbers_of_one_device(text, tmp_path):
    """The same losses, but for the order in which numbers are added; without dropout, which differs by replica."""
    logs = []
    for name, flags in {"one": [], "two": TWO, "parts": ["--micro-batches", "3"]}.items():
        run = tmp_path / name
        code = ON_TWO_DEVICES.replace("sys.argv[0]", repr(str(RECIPE))).replace("FOLDER", repr(str(RECIPE.parent)))
        arguments = small(text, run, "--dropout", "0", "--clip-norm", "0.5", "--batch-shapes", "3", *flags)
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert ("Training on 2 replicas in one process" in done.stdout) == (name == "two")
        assert ("added up by ReductionToOneDevice" in done.stdout) == (name == "two")
        assert "batches of 3 shapes" in done.stdout
        logs.append([json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()])
    for other in logs[1:]:
        for one, record in zip(logs[0], other, strict=True):
            for key in ("loss", "val_loss", "target_tokens", "token_accuracy", "val_perplexity", "gradient_norm"):
                assert record[key] == pytest.approx(one[key], rel=1e-4), key


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.slow
def test_two_workers_give_the_numbers_of_one(text, tmp_path):
    def start(run, config=None):
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)} if config else None
        command = [sys.executable, str(RECIPE), *small(text, run, "--dropout", "0")]
        command += ["--strategy", "multi-worker"] if config else []
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )

    one, two = tmp_path / "one", tmp_path / "two"
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    workers = [start(two, {"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in (0, 1)]
    try:
        outputs = [worker.communicate(timeout=280)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, output in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, output[-3000:]
        assert "of 2 workers" in output
        assert "First step done after" in output
    assert ["Exported to" in output for output in outputs] == [True, False]
    process = start(one)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output[-3000:]
    logs = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()] for run in (one, two)
    ]
    for record, other in zip(*logs, strict=True):
        for key in ("loss", "val_loss", "target_tokens", "val_perplexity", "gradient_norm"):
            assert other[key] == pytest.approx(record[key], rel=1e-4), key
    results = [json.loads((run / "results.json").read_text("utf-8"))["test_bleu"] for run in (one, two)]
    assert results[0] == pytest.approx(results[1], abs=0.5)


@pytest.mark.slow
def test_early_stopping_and_the_moving_average(recipe, text, tmp_path, capfd):
    flags = ("--early-stopping", "1", "--monitor", "val_loss", "--average", "moving", "--average-momentum", "0.5")
    run = tmp_path / "run"
    # So small a learning rate that nothing changes: the second evaluation is no better than the first.
    results = recipe.main(small(text, run, *flags, "--train-steps", "8", "--peak-learning-rate", "1e-30"))
    assert results["train_steps"] == 4
    assert "Stopped early: val_loss was best" in capfd.readouterr().out
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()] == [2, 4]


def test_a_vocabulary_the_text_cannot_fill_is_refused(recipe, text, tmp_path):
    with pytest.raises(ValueError, match=r"vocabulary_size must be at most \d+ for this text.*Received: 50000"):
        recipe.main(small(text, tmp_path / "run", "--vocabulary-size", "50000"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_the_same_bits(text, tmp_path, number):
    def start(run, *more):
        more = ["--train-steps", "12", *more]
        command = [sys.executable, str(RECIPE), *small(text, run, *more)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output[-3000:]

    process = start(killed)
    deadline = time.monotonic() + 300
    while not list((killed / "checkpoints").glob("ckpt-4.index")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=300)
    if number == signal.SIGTERM:
        assert process.returncode == 0, output[-3000:]
        assert "Stopped by SIGTERM after step" in output
        assert "with --resume" in output
    process = start(killed, "--resume")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output[-3000:]
    assert "Resuming after step" in output

    models = [keras.saving.load_model(run / "model.keras", compile=False) for run in (whole, killed)]
    for one, other in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_array_equal(one, other)

    def log(run):
        names = ("metrics.jsonl",)
        lines = [line for name in names for line in (run / name).read_text("utf-8").splitlines()]
        return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in lines]

    assert log(killed) == log(whole)


def test_reads_a_data_set_of_tensorflow_datasets(recipe, tmp_path):
    import tensorflow_datasets as tfds

    pairs = [("The first.", "Das erste."), ("The second.", "Das zweite."), ("The third.", "Das dritte.")]
    rows = [{"en": english, "de": german} for english, german in pairs]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="wmt14_translate",
        config="de-en",
        version="1.0.0",
        data_dir=tmp_path,
        features=tfds.features.Translation(languages=("de", "en")),
        split_datasets={
            "train": enumerate(rows),
            "validation": enumerate(rows[:2]),
            "test": enumerate(rows[:1]),
        },
        disable_shuffling=True,
    )
    flags = ["--preset", "base", "--dataset", "wmt14_translate/de-en", "--data-dir", str(tmp_path)]
    corpora = recipe.open_corpora(recipe.parse_config(flags))
    assert {split: list(corpora[split]) for split in corpora} == {"train": pairs, "dev": pairs[:2], "test": pairs[:1]}
    reverse = recipe.open_corpora(recipe.parse_config([*flags, "--source-language", "de", "--target-language", "en"]))
    assert next(iter(reverse["train"])) == ("Das erste.", "The first.")
    with pytest.raises(FileNotFoundError, match="download"):
        recipe.open_corpora(recipe.parse_config([*flags[:-1], str(tmp_path / "elsewhere")]))
