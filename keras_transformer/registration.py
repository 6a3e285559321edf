"""Make the package's classes known to Keras, so that `keras.saving.load_model` finds them by their registered names.

Keras looks a class up in a table that the class's decorator fills in, and imports nothing itself. The package imports
its modules only when they are asked for, so it imports those with registered classes as soon as there is a Keras to
register them with: at once where Keras is imported already, else right after `import keras`.
"""

import importlib.util
import sys

_MODULES = ("transformer", "training.losses", "training.metrics", "training.optimizers", "training.schedules")


def register():
    """Import every module that registers classes with Keras."""
    for module in _MODULES:
        importlib.import_module(f"keras_transformer.{module}")


def register_with_keras():
    """Register now if Keras is imported, else as soon as it is."""
    if "keras" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterKeras())


class _AfterKeras:
    """An import hook that lets Keras be found as ever, registers after it has run, and is gone then."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module):
                run(module)
                register()

            spec.loader.exec_module = run_and_register
        return spec
