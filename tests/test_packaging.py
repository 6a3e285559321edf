"""What gets installed: the package alone, complete, under the version it says."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import keras_transformer

ROOT = Path(__file__).parent.parent
SCRIPTS = ("recipes", "export", "benchmarks", "tests")


def run(*command, **arguments):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, **arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """A wheel and a source distribution, built from a copy so that the working tree stays as it is."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("output")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("keras_transformer", *filter(lambda name: (ROOT / name).is_dir(), SCRIPTS)):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for kind in ("sdist", "wheel"):
        # A process each: setuptools leaves its own arguments in sys.argv.
        run(
            "-c", f"import sys; from setuptools import build_meta as b; b.build_{kind}(sys.argv[1])", output, cwd=source
        )
    return next(output.glob("*.whl")), next(output.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def metadata(distributions):
    with zipfile.ZipFile(distributions[0]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode("utf-8"))


def test_wheel_holds_the_package_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions[0]) as wheel:
        names = wheel.namelist()
    inside = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    on_disk = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "keras_transformer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == on_disk, "files of the package are missing in the wheel, or too many: see package_data in setup.py"
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_source_distribution_holds_no_scripts(distributions):
    with tarfile.open(distributions[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "keras_transformer/__init__.py"} <= names
    assert not {name for name in names if name.split("/")[0] in SCRIPTS}


def test_metadata(metadata):
    assert metadata["Name"] == "keras-transformer-translation"
    assert metadata["Version"] == keras_transformer.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    # Every dependency of the core has an upper bound: an unknown version may write files that this one cannot read.
    for requirement in metadata.get_all("Requires-Dist"):
        if "extra ==" not in requirement and not requirement.startswith("importlib_resources"):
            assert re.search(r"<\d", requirement), requirement
    assert f"## {keras_transformer.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_installed_wheel_imports_from_its_own_place(distributions, tmp_path):
    target = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, distributions[0])
    assert {path.name.split("-")[0] for path in target.iterdir()} == {
        "bin",
        "keras_transformer",
        "keras_transformer_translation",
    }
    assert [path.name for path in (target / "bin").iterdir()] == ["keras-transformer"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    assert "--model" in run(target / "bin" / "keras-transformer", "translate", "--help", cwd=tmp_path, env=environment)
    check = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import keras_transformer, importlib.metadata as m\n"
        "print(keras_transformer.__file__, m.version('keras-transformer-translation'), keras_transformer.__version__)"
    )
    file, installed, version = run("-c", check, target, cwd=tmp_path).split()
    assert Path(file) == target / "keras_transformer" / "__init__.py"
    assert installed == version == keras_transformer.__version__


def test_install_commands_in_the_texts_name_extras_that_exist(metadata):
    known = set(metadata.get_all("Provides-Extra"))
    commands = {
        name: re.findall(r"pip install [^\n`]*\[([\w,-]+)\]", (ROOT / name).read_text("utf-8"))
        for name in ("README.md", "CONTRIBUTING.md", ".ci/run")
    }
    for name, extras in commands.items():
        assert set(",".join(extras).split(",")) - {""} <= known, name
        assert "test" in ",".join(extras).split(","), f"{name} does not say how to install what the tests need"
    for name in ("README.md", ".ci/run"):
        assert "pip install" in (text := (ROOT / name).read_text("utf-8")), name
        assert re.search(r"pip install (--quiet )?-e '\.\[test\]'", text), name
