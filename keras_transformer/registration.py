"""Make the package's classes known to Keras, so that `keras.saving.load_model` finds them by their registered names.

Keras looks a class up in a table that the class's decorator fills in, and imports nothing itself. The package imports
its modules only when they are asked for, so it imports those with registered classes as soon as there is a Keras to
register them with: at once where Keras is imported already, else right after `import keras`, or after the module of the
package that imports it.
"""

import functools
import importlib.util
import sys

_MODULES = ("transformer", "training.losses", "training.metrics", "training.optimizers")


def register():
    """Import every module that registers classes with Keras."""
    for module in _MODULES:
        importlib.import_module(f"keras_transformer.{module}")


def register_with_keras():
    """Register now if Keras is imported, else as soon as it is."""
    if "keras" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Registrar())


class _Registrar:
    """An import hook that lets modules be found as ever, and registers once Keras is there; it is gone then.

    Where a module of the package is what imports Keras, it waits for the outermost one to be done: what is imported
    halfway cannot be imported from.
    """

    def __init__(self):
        self._depth = 0
        self._searching = False

    def find_spec(self, name, path=None, target=None):
        if self._searching or not (name == "keras" or name.startswith("keras_transformer.")):
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(self._run, spec.loader.exec_module)
        return spec

    def _run(self, run, module):
        self._depth += 1
        try:
            run(module)
        finally:
            self._depth -= 1
        if not self._depth and self in sys.meta_path and "keras" in sys.modules:
            sys.meta_path.remove(self)
            register()
