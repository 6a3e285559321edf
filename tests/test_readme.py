"""The programs in the README run as they stand."""

import re
from pathlib import Path

import pytest

from keras_transformer.saved_model.writer import write_saved_model

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_programs_run(tmp_path, monkeypatch, untrained_translator):
    monkeypatch.chdir(tmp_path)
    for run in ("translation", "one", "two"):
        untrained_translator.save(tmp_path / "runs" / run)
    write_saved_model(untrained_translator, tmp_path / "runs" / "translation" / "export" / "1")
    names = {}
    for program in PROGRAMS:
        exec(compile(program, "README.md", "exec"), names)
    assert (tmp_path / "model.keras").is_file()
    assert names["classifier"].output_shape == (None, 3)
    assert names["best"].alignment is not None


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (Path(__file__).parent.parent / target).exists()
