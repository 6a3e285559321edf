"""What the launch files start, with stand-ins for the cluster's programs and for the recipe."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "recipes" / "launch"

# Notes how it was called, and waits for SIGTERM if it is told to.
RECIPE = """#!{python}
import json, os, signal, sys
folder = os.environ["NOTES"]
config = json.loads(os.environ["TF_CONFIG"])
if os.environ.get("WAIT"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(os.path.join(folder, f"task-{{config['task']['index']}}.partial"), "w") as file:
    json.dump([config, sys.argv[1:]], file)
os.rename(file.name, file.name.replace("partial", "json"))
while os.environ.get("WAIT"):
    signal.pause()
"""

SRUN = """#!/bin/bash
echo "$1 $2" > "$NOTES/srun"
shift 2
for number in 0 1; do SLURM_PROCID=$number "$@"; done
"""

SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames node[7-8]" ] && printf 'node7\\nnode8\\n'
"""


@pytest.fixture
def environment(tmp_path):
    for name, text in (("python", RECIPE.format(python=sys.executable)), ("srun", SRUN), ("scontrol", SCONTROL)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "run with spaces").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "PYTHON", "RECIPE", "PORT")}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "NOTES": str(tmp_path), "RUN": str(tmp_path / "run with spaces")}


def started(environment):
    """What the recipe got in each task: TF_CONFIG and the arguments."""
    return [json.loads(path.read_text()) for path in sorted(Path(environment["NOTES"]).glob("task-*.json"))]


@pytest.mark.parametrize("begun", [False, True])
def test_slurm(environment, begun):
    if begun:
        Path(environment["RUN"], "config.json").touch()
    slurm = {"SLURM_SUBMIT_DIR": "/repository", "SLURM_JOB_ID": "1234567", "SLURM_JOB_NODELIST": "node[7-8]"}
    command = ["bash", str(LAUNCH / "slurm.sh"), "--source", "a file", "--preset", "tiny"]
    subprocess.run(command, env={**environment, **slurm}, check=True, timeout=300)
    assert Path(environment["NOTES"], "srun").read_text() == "--kill-on-bad-exit=1 --distribution=block\n"
    tasks = started(environment)
    assert [config["task"] for config, _ in tasks] == [{"type": "worker", "index": index} for index in range(2)]
    for config, arguments in tasks:
        assert config["cluster"] == {"worker": ["node7:24567", "node8:24567"]}
        resume = ["--resume"] if begun else []
        assert arguments[:3] == ["/repository/recipes/train_wmt.py", "--strategy", "multi-worker"]
        assert arguments[3:5] == ["--run-directory", environment["RUN"]]
        assert arguments[5:] == [*resume, "--source", "a file", "--preset", "tiny"]


def test_slurm_needs_a_run_directory(environment):
    del environment["RUN"]
    done = subprocess.run(
        ["bash", str(LAUNCH / "slurm.sh")], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert "RUN" in done.stderr


@pytest.fixture
def job():
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text("utf-8")))


def container(job, environment, index, **more):
    """The container of one pod, as a process."""
    (described,) = job[1]["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable["value"] for variable in described["env"]}
    variables |= {**environment, "JOB_COMPLETION_INDEX": str(index), **more}
    return subprocess.Popen([*described["command"], *described["args"]], env=variables)


def test_kubernetes_names_belong_together(job):
    service, spec = job[0], job[1]["spec"]
    assert job[1]["metadata"]["name"] == service["metadata"]["name"] == service["spec"]["selector"]["job-name"]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert spec["completions"] == spec["parallelism"] == 2
    assert service["spec"]["clusterIP"] == "None"
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    (described,) = spec["template"]["spec"]["containers"]
    assert {mount["name"] for mount in described["volumeMounts"]} == volumes


@pytest.mark.parametrize("begun", [False, True])
def test_kubernetes(job, environment, begun):
    if begun:
        Path(environment["RUN"], "config.json").touch()
    Path(environment["RUN"], "results.json").touch()
    for index in range(2):
        assert container(job, environment, index).wait(timeout=300) == 0
    for index, (config, arguments) in enumerate(started(environment)):
        assert config["task"] == {"type": "worker", "index": index}
        assert config["cluster"] == {"worker": ["translation-0.translation:2222", "translation-1.translation:2222"]}
        assert arguments[:2] == ["recipes/train_wmt.py", "--strategy"]
        assert environment["RUN"] in arguments
        assert ("--resume" in arguments) == begun


def test_kubernetes_starts_a_stopped_run_again(job, environment):
    process = container(job, environment, 0, WAIT="1")
    try:
        deadline = time.monotonic() + 300
        while not started(environment) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(timeout=300) == 75  # the recipe has ended with 0, and is not done
    finally:
        process.kill()
