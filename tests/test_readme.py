"""The programs in the README run as they stand."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_programs_for_user_code_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for program in PROGRAMS:
        if "runs/translation" not in program:  # those need a trained run
            exec(compile(program, "README.md", "exec"), names)
    assert (tmp_path / "model.keras").is_file()
    assert names["classifier"].output_shape == (None, 3)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (Path(__file__).parent.parent / target).exists()
