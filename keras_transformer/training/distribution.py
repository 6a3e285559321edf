"""A training step for `fit` that gives the same numbers on any number of replicas."""

import re

import keras
import tensorflow as tf

from keras_transformer.keras_internals import (
    build_for_fit,
    builds_without_reading,
    gradients_summed_already,
    set_untracked,
)
from keras_transformer.training.losses import LabelSmoothedCrossEntropy

# What the message of the failed assertion is cut out with, see `TrainingModel.make_train_function`.
_STOPPED = "Training stopped"
_DIAGNOSIS = re.compile(rf"{_STOPPED}.*?(?=\]|$)", re.DOTALL)
_MAX_NAMES = 8


class _SkippedSteps(keras.metrics.Metric):
    """Number of steps that were skipped. The first replica counts for all, since their counts are added up."""

    def __init__(self, name="skipped_steps"):
        super().__init__(name=name, dtype="float32")
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")

    def update_state(self, skipped):
        is_first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
        self.total.assign_add(tf.cast(tf.logical_and(skipped, is_first), "float32"))

    def result(self):
        return self.total + 0.0  # a copy: Keras keeps the result while training goes on counting


def _known_batches(model, iterator):
    labels = model.output.shape[:-1]
    return model.input, keras.KerasTensor(labels, "int32"), keras.KerasTensor(labels, "float32")


@builds_without_reading(_known_batches)
class TrainingModel(keras.Model):
    """Trains a model in `fit` with a step that is exact under `tf.distribute`.

    It is a model with the inputs, outputs, layers and weights of the one that it is made from. `compile` and `fit`
    this one; translate, export and save that one, which has every update at once. Without any option, on one device,
    it gives the numbers of Keras's own `fit`. What differs from Keras on several replicas:

    - *Clipping*: `clipnorm`, `global_clipnorm` and `clipvalue` of the optimizer hold for the gradient of the global
      batch. Keras clips each replica's gradient, then adds them up.
    - *Skipping*: where the gradient of one weight on one replica is not finite, no replica changes anything: weights,
      the optimizer's state and `iterations` stay, no metric counts the batch, and `skipped_steps` is one more. A
      gradient whose norm is beyond float32 counts as not finite. After `max_skipped_steps` in a row `fit` raises
      FloatingPointError with the step, the weights concerned and the shape of the batch on each replica.
    - *Loss scaling*: under `mixed_float16` one scale holds for all replicas: it is halved when a step is skipped and
      doubled after 2000 good ones. It is kept where Keras keeps it, in a `keras.optimizers.LossScaleOptimizer` that
      `compile` puts around the optimizer. Keras looks at the gradients of the first replica only.

    Two more things that Keras cannot do under a strategy:

    - *Accumulation*: each replica cuts its rows into `num_micro_batches` parts, runs one after the other, and makes
      one update with the sum of their gradients. The update is that of the whole batch at once, since all parts are
      divided by the weights of the global batch; only the memory for activations is that of a part. (Dropout draws
      other masks, as for any other cut.) `iterations` counts updates.
    - *XLA*: `compile(jit_compile=True)` compiles forward and backward pass on each replica, once for each shape of a
      batch: give it few, as `Batches(num_shapes=8)` does. The rest of the step and `evaluate` are not compiled.

    The log has two more numbers: `gradient_norm`, the mean over steps of the norm of the global gradient before
    clipping, and `skipped_steps`. Neither is in the results of `evaluate`.

    State that a checkpoint must hold: `weights` are those of the model that was given, in its order; `variables` are
    these, the seeds of dropout and last `skipped_in_a_row`; `optimizer.variables` are the optimizer's, and before
    them, under `mixed_float16`, the loss scale and the number of good steps since it changed.

    Args:
        model: a built functional `keras.Model`, made inside of the scope of the strategy if there is one. Its output
            is what `LabelSmoothedCrossEntropy` takes: logits `[B, T, V]`.
        num_micro_batches: number of parts of each replica's rows, a positive integer. Rows need not divide evenly.
            Defaults to 1.
        max_skipped_steps: positive integer, or None to apply whatever comes, without `gradient_norm` and
            `skipped_steps`; under `mixed_float16` steps are then skipped without limit. Defaults to 20: the loss scale
            of `mixed_float16` begins at 2^15, which is too high by less than that.

    Call arguments:
        as `model`.

    Raises:
        ValueError: if an argument is none of the above; by `compile`, if the loss is no `LabelSmoothedCrossEntropy`,
            or the optimizer or a metric was made outside of the strategy's scope, or the optimizer accumulates or
            scales by itself.
        FloatingPointError: by `fit`, see above.
    """

    def __init__(self, model, *, num_micro_batches=1, max_skipped_steps=20, name="training_model"):
        if not isinstance(model, keras.Model) or getattr(model, "input", None) is None:
            raise ValueError(f"`model` must be a built functional keras.Model. Received: model={model!r}")
        for argument, value in (("num_micro_batches", num_micro_batches), ("max_skipped_steps", max_skipped_steps)):
            if argument == "max_skipped_steps" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{argument}` must be a positive integer. Received: {argument}={value!r}")
        with model.distribute_strategy.scope():
            super().__init__(inputs=model.input, outputs=model.output, name=name)
            step_metrics = [keras.metrics.Mean(name="gradient_norm"), _SkippedSteps()]
            skipped_in_a_row = keras.Variable(0, dtype="int64", trainable=False, name="skipped_in_a_row")
        self.dtype_policy = model.dtype_policy  # tells `compile` whether the loss must be scaled
        self.num_micro_batches = num_micro_batches
        self.max_skipped_steps = max_skipped_steps
        self._compile_step = False
        self._evaluating = False
        # Past Keras's attribute tracking: as a weight or a layer each would change `weights`.
        set_untracked(self, "model", model)
        set_untracked(self, "skipped_in_a_row", skipped_in_a_row)
        set_untracked(self, "_step_metrics", step_metrics)

    # === What Keras asks a model for ===

    @property
    def variables(self):
        return [*super().variables, self.skipped_in_a_row]

    @property
    def metrics(self):
        return [*super().metrics, *([] if self._evaluating or not self._checks_gradients else self._step_metrics)]

    def compile(self, optimizer="rmsprop", loss=None, *, jit_compile=False, **kwargs):
        """Configure training as `keras.Model.compile` does, whose other arguments it takes.

        Args:
            optimizer: as for Keras, with or without clipping, made in the strategy's scope.
            loss: a `LabelSmoothedCrossEntropy`.
            jit_compile: whether XLA compiles forward and backward pass. Defaults to False.
        """
        if not isinstance(loss, LabelSmoothedCrossEntropy):
            raise ValueError(f"`loss` must be a LabelSmoothedCrossEntropy. Received: loss={loss!r}")
        with self.distribute_strategy.scope():
            super().compile(optimizer=optimizer, loss=loss, jit_compile=False, **kwargs)
            optimizer = self._inner_optimizer
            for argument in ("gradient_accumulation_steps", "loss_scale_factor"):
                if getattr(optimizer, argument):
                    raise ValueError(
                        f"`optimizer` must not have `{argument}`: micro-batches and the loss scale belong to the "
                        f"step. Received: {argument}={getattr(optimizer, argument)!r}"
                    )
            self._compile_step = bool(jit_compile)
            # Here and not in the first step: checkpoints need the optimizer's variables, and metrics must not make
            # theirs inside of a replica.
            build_for_fit(self)
            for made, variables in (("optimizer", self.optimizer.variables), ("metrics", self.metrics_variables)):
                for variable in variables:
                    if not self.distribute_strategy.extended.variable_created_in_scope(variable.value):
                        raise ValueError(
                            f"`{made}` must be made inside of the scope of the model's strategy. "
                            f"Received: the variable {variable.path} made outside of it"
                        )

    def evaluate(self, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate` does."""
        self._evaluating = True
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            self._evaluating = False

    def save(self, *args, **kwargs):
        """Save the model that was given, without the state of training."""
        self.model.save(*args, **kwargs)

    def save_weights(self, *args, **kwargs):
        """Save the weights of the model that was given."""
        self.model.save_weights(*args, **kwargs)

    def load_weights(self, *args, **kwargs):
        """Load weights that the model that was given has saved."""
        self.model.load_weights(*args, **kwargs)

    def make_train_function(self, force=False):
        """Make the function that `fit` calls for every batch."""
        if self.train_function is not None and not force:
            return self.train_function
        super().make_train_function(force=True)
        function = self.train_function

        def function_with_diagnosis(iterator):
            try:
                return function(iterator)
            except tf.errors.InvalidArgumentError as error:
                diagnosis = _DIAGNOSIS.search(error.message)
                if diagnosis is None:
                    raise
                raise FloatingPointError(diagnosis[0]) from None

        self.train_function = function_with_diagnosis
        return function_with_diagnosis

    # === The step ===

    @property
    def _inner_optimizer(self):
        return getattr(self.optimizer, "inner_optimizer", self.optimizer)

    @property
    def _scales_loss(self):
        return self.optimizer is not self._inner_optimizer

    @property
    def _checks_gradients(self):
        return self.max_skipped_steps is not None

    def train_step(self, data):
        """One update; runs on each replica with its own rows."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        replica = tf.distribute.get_replica_context()
        divisor = tf.ones(())
        if self.loss.reduction != "sum":
            divisor = replica.all_reduce(tf.distribute.ReduceOp.SUM, self.loss.total_weight(y, sample_weight))
        scale = tf.convert_to_tensor(self.optimizer.dynamic_scale) if self._scales_loss else tf.ones(())
        before = [tf.convert_to_tensor(variable) for variable in self.metrics_variables]

        sums = self._loss_and_gradients(x, y, sample_weight, divisor, scale)
        loss, *gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, sums)
        if self._scales_loss:
            gradients = [gradient / tf.cast(scale, gradient.dtype) for gradient in gradients]
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(keras.tree.flatten(x)[0])[0])

        # One pass tells the norm and whether all is finite. Summed over the replicas, so all of them find the same.
        squares = tf.stack([2 * tf.cast(tf.nn.l2_loss(gradient), "float32") for gradient in gradients])
        norm = tf.sqrt(tf.reduce_sum(squares))
        finite = tf.math.is_finite(norm)
        replica.merge_call(self._update, args=(gradients, squares, finite, tf.shape(y)))
        if self._checks_gradients:
            norm_metric, skipped_metric = self._step_metrics
            norm_metric.update_state(norm)
            for variable, old in zip(self.metrics_variables, before, strict=True):
                variable.assign(tf.where(finite, tf.convert_to_tensor(variable), old))
            skipped_metric.update_state(tf.logical_not(finite))
        return self._step_logs(self.get_metrics_result())

    def test_step(self, data):
        """The metrics of one batch; runs on each replica with its own rows."""
        return self._step_logs(super().test_step(data))

    def _step_logs(self, logs):
        # What the replicas of several hosts return Keras averages over the first axis, which a number does not have.
        strategy = self.distribute_strategy
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return logs
        if sum(map(len, strategy.cluster_resolver.cluster_spec().as_dict().values())) < 2:
            return logs
        return keras.tree.map_structure(lambda value: tf.reshape(value, (1,)), logs)

    def _loss_and_gradients(self, x, y, sample_weight, divisor, scale):
        """This replica's share in the loss, and the gradients of that times `scale`, over all micro-batches."""
        # Made anew in every trace, since each replica has variables of its own.
        function = tf.function(self._micro_batch, autograph=False, jit_compile=True)
        function = function if self._compile_step else self._micro_batch
        if self.num_micro_batches == 1:
            return function(x, y, sample_weight, divisor, scale)
        rows = tf.shape(keras.tree.flatten(x)[0])[0]

        def add(index, *sums):
            start, stop = rows * index // self.num_micro_batches, rows * (index + 1) // self.num_micro_batches
            part = keras.tree.map_structure(lambda t: None if t is None else t[start:stop], (x, y, sample_weight))
            return [index + 1, *map(tf.add, sums, function(*part, divisor, scale))]

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in self.trainable_variables]
        # Not unrolled, and one at a time: otherwise all parts could be in memory together.
        _, *sums = tf.while_loop(
            lambda index, *_: index < self.num_micro_batches,
            add,
            [tf.zeros((), "int32"), tf.zeros(()), *zeros],
            parallel_iterations=1,
        )
        return sums

    def _micro_batch(self, x, y, sample_weight, divisor, scale):
        """Forward and backward pass over some rows, without a word to the other replicas: XLA can compile it."""
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = tf.math.divide_no_nan(self.loss.total(y, y_pred, sample_weight), divisor)
            if self.losses:  # of regularizers: once for the global batch
                num_calls = self.num_micro_batches * self.distribute_strategy.num_replicas_in_sync
                loss += tf.add_n([tf.cast(tf.reduce_sum(extra), "float32") for extra in self.losses]) / num_calls
            scaled_loss = loss * scale
        self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        gradients = tape.gradient(scaled_loss, self.trainable_variables, unconnected_gradients="zero")
        return [loss, *map(tf.convert_to_tensor, gradients)]

    def _update(self, strategy, gradients, squares, finite, shape):
        """Applies summed gradients on all replicas, or on none. Not on a replica: there a branch could not update."""
        optimizer, trainable_variables = self._inner_optimizer, self.trainable_variables
        squares, finite = (strategy.experimental_local_results(value)[0] for value in (squares, finite))

        def apply():
            with gradients_summed_already(optimizer):
                strategy.extended.call_for_each_replica(
                    lambda gradients: optimizer.apply(gradients, trainable_variables), args=(gradients,)
                )
            self.skipped_in_a_row.assign(0)
            if self._scales_loss:
                scale, steps = self.optimizer.dynamic_scale, self.optimizer.step_counter
                grows = tf.equal(steps, self.optimizer.dynamic_growth_steps - 1)
                scale.assign(tf.where(grows, scale * 2.0, scale))
                steps.assign(tf.where(grows, tf.zeros_like(steps), steps + 1))
            return True

        def skip():
            if self._scales_loss:
                self.optimizer.dynamic_scale.assign(self.optimizer.dynamic_scale * 0.5)
                self.optimizer.step_counter.assign(0)
            self.skipped_in_a_row.assign_add(1)
            if self._checks_gradients:
                tf.debugging.Assert(
                    tf.convert_to_tensor(self.skipped_in_a_row) < self.max_skipped_steps,
                    [self._diagnosis(squares, strategy.experimental_local_results(shape))],
                )
            return True

        if self._checks_gradients or self._scales_loss:
            tf.cond(finite, apply, skip)
        else:
            apply()

    def _diagnosis(self, squares, shapes):
        """What to say when training stops, a string tensor without brackets."""
        shapes = [tf.strings.reduce_join(tf.strings.as_string(shape), separator=" x ") for shape in shapes]
        bad = tf.boolean_mask([variable.path for variable in self.trainable_variables], ~tf.math.is_finite(squares))
        names = tf.strings.reduce_join(bad[:_MAX_NAMES], separator=", ")
        return tf.strings.join(
            [
                f"{_STOPPED}: {self.max_skipped_steps} steps in a row had gradients that are not finite, the last one "
                "at step ",
                tf.strings.as_string(tf.convert_to_tensor(self._inner_optimizer.iterations) + 1),
                "; weights: ",
                tf.strings.as_string(tf.size(bad)),
                f" of {len(self.trainable_variables)}, the first of them ",
                names,
                "; labels of the batch, by replica: ",
                tf.strings.reduce_join(tf.stack(shapes), separator=", "),
            ]
        )
