"""The exponential moving average of the weights that a Keras optimizer keeps with `use_ema=True`.

The average is kept inside the training step, at the cost of one more copy of the weights:

    average = ema_momentum * average + (1 - ema_momentum) * weight

and begins with the weights after the first step. It is one of the optimizer's variables, so `Checkpoints` saves it,
and it is exact under `tf.distribute` too. When `fit` ends, Keras puts it into the model. Checkpoints hold the weights
themselves and the average beside them.

Do not use it together with the optimizer's own `gradient_accumulation_steps`: Keras then averages at every
micro-batch, also when the weights have not changed.

Reference:
    - [Polyak and Juditsky, 1992](https://epubs.siam.org/doi/10.1137/0330046)
"""

import contextlib

import keras

from keras_transformer.training.progress import steps_made


@contextlib.contextmanager
def averaged_weights(model):
    """Context in which a model has the moving average for its weights; afterwards it has its own again, to the bit.

    Keras's `SwapEMAWeights` swaps by adding and subtracting, which leaves rounding errors in the weights.

    Before the first step there is no average, and the model keeps its weights.

    Args:
        model: a `keras.Model`, compiled with an optimizer that was made with `use_ema=True`.

    Raises:
        ValueError: when the optimizer keeps no average.
    """
    optimizer = model.optimizer
    if not getattr(getattr(optimizer, "inner_optimizer", optimizer), "use_ema", False):
        raise ValueError(
            f"`model` must be compiled with an optimizer with `use_ema=True`. Received: model.optimizer={optimizer!r}"
        )
    if steps_made(model) == 0:
        yield
        return
    weights = model.trainable_weights
    own = [keras.ops.convert_to_numpy(weight) for weight in weights]
    optimizer.finalize_variable_values(weights)
    try:
        yield
    finally:
        for weight, value in zip(weights, own, strict=True):
            weight.assign(value)


class EvaluateAveragedWeights(keras.callbacks.Callback):
    """Evaluates with the moving average of the weights, within `fit` and by `evaluate`.

    For `TranslationScores` put `averaged_weights` around the call that translates.
    """

    def __init__(self):
        super().__init__()
        self._stack = contextlib.ExitStack()

    def on_train_begin(self, logs=None):
        self._stack.close()

    def on_test_begin(self, logs=None):
        self._stack.enter_context(averaged_weights(self.model))

    def on_test_end(self, logs=None):
        self._stack.close()
