"""Imports go downwards only, and importing the package is quiet: no network, nothing heavy that only some need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "keras_transformer"

# What a part of the package may import, besides itself: what is in the floors below, each a line of this table.
# `data`, `decoding` and `training` stand side by side and are handed what they need of each other (a tokenizer, a
# next-token function, a translator), so that each can be used without the others.
FLOORS = (
    {"vocabulary", "files", "keras_internals", "masks", "registration", "start_up"},
    {"presets", "layers"},
    {"transformer"},
    {"parameter_count"},
    {"data"},
    {"decoding"},
    {"training"},
    {"translation"},
    {"saved_model"},
    {"formats"},
    {"pretrained"},
    {"server"},
    {"runs"},
    {"commands"},
    {"__main__"},
    {"__init__"},
)
APART = ({"data", "decoding", "training", "layers", "transformer"}, {"saved_model", "formats"}, {"server", "runs"})
MAY_IMPORT = {}
for number, floor in enumerate(FLOORS):
    below = set().union(*FLOORS[:number])
    for part in floor:
        MAY_IMPORT[part] = below - {"presets"} if part in ("data", "decoding", "training") else set(below)
        for parts in APART:
            if part in parts and part not in ("transformer",):
                MAY_IMPORT[part] -= parts - {part}
MAY_IMPORT["translation"] -= {"training"}
MAY_IMPORT["server"] -= {"training", "runs", "formats"}

# The ways up, to the door: `Translator.load` stands where users look for it, and a writer takes a path for a model.
LATE_UPWARDS = {("translation.translator", "pretrained"), ("formats.ctranslate2", "pretrained")}

# Everything else is plain Keras and runs on its other backends.
TENSORFLOW = ("tensorflow", "tensorflow_text", "tensorflow_datasets")
MAY_USE_TENSORFLOW = (
    "data",
    "decoding",
    "translation",
    "saved_model",
    "formats",
    "start_up",
    "pretrained",
    "runs",
    "server",
    "commands",
    "training.distribution",
    "training.checkpoint_average",
    "__main__",
)
# Only where a function asks for it: for what `tf.distribute` alone knows (the number of the replica, a sum over them),
# and for a kernel that Keras does not use.
MAY_USE_TENSORFLOW_LATE = ("layers.position_wise", "training.losses", "training.optimizers")


def module_name(path):
    """Name of a module within the package: `data.batches`, or `data` for the `__init__` of `data`."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports_of(path):
    """All that a module imports, as `(absolute name, whether it is imported on import of the module)`."""
    tree = ast.parse(path.read_text("utf-8"))
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    package = ["keras_transformer", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from keras_transformer import data` names a part, so what is imported counts too.
            names = [f"{module}.{alias.name}" for alias in node.names]
        found += [(name, id(node) not in late) for name in names]
    return found


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def starts_with(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def test_every_part_has_its_place():
    parts = {name.split(".")[0] for name in MODULES}
    assert parts <= set(MAY_IMPORT), "a new part of the package needs a line in MAY_IMPORT"


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards(module):
    part = module.split(".")[0]
    for name, at_import in imports_of(MODULES[module]):
        if name.startswith("keras_transformer."):
            other = name.split(".")[1]
            if (module, other) in LATE_UPWARDS and not at_import:
                continue
            if other in MAY_IMPORT:  # else a name of the package's __init__, such as __version__
                assert other == part or other in MAY_IMPORT[part], f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES)
def test_tensorflow_is_where_it_belongs(module):
    if starts_with(module, MAY_USE_TENSORFLOW):
        return
    for name, at_import in imports_of(MODULES[module]):
        if starts_with(name, TENSORFLOW):
            assert starts_with(module, MAY_USE_TENSORFLOW_LATE), f"{module} imports {name}"
            assert not at_import, f"{module} imports {name} outside of a function"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_private_of_keras_or_tensorflow(module):
    for name, _ in imports_of(MODULES[module]):
        assert not starts_with(name, ("keras.src", "tensorflow.python", "keras._tf_keras")), f"{module} imports {name}"


def private_names(tree):
    """Private names that a module reads as attributes, and those that it defines itself."""
    read, defined = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            (read if isinstance(node.ctx, ast.Load) else defined).add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "set_untracked":
            defined.add(node.args[1].value)
    return {name for name in read if name.startswith("_") and not name.endswith("__")}, defined


def test_private_names_of_keras_and_tensorflow_have_one_home():
    """Every private attribute that the package reads is one that it defines, but in `keras_internals`."""
    modules = {name: private_names(ast.parse(path.read_text("utf-8"))) for name, path in MODULES.items()}
    own = set().union(*(defined for name, (_, defined) in modules.items() if name != "keras_internals"))
    standard = {"_replace", "_asdict", "_exit"}  # of named tuples and of `os`
    foreign = {name: read - own - standard for name, (read, _) in modules.items() if name != "keras_internals"}
    assert not {name: read for name, read in foreign.items() if read}


# What one can keep in mind at once.
MAX_FUNCTION_LINES, MAX_MODULE_LINES = 60, 400


def long_functions(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    sizes = {
        n.name: n.end_lineno - n.lineno + 1
        for n in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(n, functions)
    }
    return {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES}


@pytest.mark.parametrize("module", MODULES)
def test_sizes(module):
    assert not long_functions(MODULES[module])
    assert len(MODULES[module].read_text("utf-8").splitlines()) <= MAX_MODULE_LINES


def test_scripts_are_no_packages():
    for folder in ("recipes", "export", "benchmarks", "tests"):
        assert not list((PACKAGE.parent / folder).rglob("__init__.py"))


QUIET = """
import socket, sys, warnings
def refuse(*arguments, **named):
    raise AssertionError("importing the package opened a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import keras_transformer
heavy = {"tensorflow_datasets", "tyro", "torch", "ctranslate2", "sacrebleu", "tensorboard"} & set(sys.modules)
heavy |= {"tensorflow_serving", "grpc", "aiohttp", "prometheus_client"} & set(sys.modules)
assert not heavy, f"importing keras_transformer imports {heavy}"
for name in sys.argv[1:]:
    __import__("keras_transformer." + name)
heavy = {"tensorflow_datasets", "tyro", "torch", "ctranslate2"} & set(sys.modules)
assert not heavy, f"importing its modules imports {heavy}"
"""


def test_importing_is_quiet():
    modules = [name for name in MODULES if not starts_with(name, ("__init__", "__main__", "commands"))]
    done = subprocess.run([sys.executable, "-c", QUIET, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
