"""Training one model on several hosts: what a script needs around `TrainingModel`.

Every host runs the same script as one process, called a worker, and learns from the environment variable TF_CONFIG who
the others are and which one it is. The chief is the worker that writes; by default the first one. In this order:

    strategy = hosts.connect()                        # before anything else: it sets up TensorFlow's devices
    with hosts.chief_first(strategy):
        prepare_or_read_the_data()                    # the chief writes files, the others find them
    with strategy.scope():
        training = TrainingModel(make_model())
        training.compile(...)
    checkpoints = Checkpoints(directory, training, write=hosts.is_chief(strategy))
    step = checkpoints.restore_latest()
    hosts.check_same(strategy, step=step, data=hash_of_the_data)
    training.fit(
        hosts.share_rows(batches.dataset(start_step=step), strategy),
        validation_data=hosts.share_rows(validation_batches.dataset(repeat=False), strategy),
        validation_steps=validation_batches.num_batches(),
        callbacks=[..., hosts.StopOnSignalAnywhere(checkpoints, strategy)],
        ...
    )
    with hosts.chief_first(strategy):                 # the others stay until the chief is done
        if hosts.is_chief(strategy):
            score_and_export()

All workers see the same run directory, and all make the same steps: whatever ends or prolongs training must decide
alike everywhere. Callbacks that only look may be the chief's alone, such as `TranslationScores`, `MetricsLog` and
`TensorBoardLog`; `ChiefLogs` gives what they add to the logs to the others, where those decide by it.
Checkpoints go by steps, not by seconds.

When one worker is gone the others cannot go on. They end with TensorFlow's UnavailableError, within seconds where the
connection breaks. End what is left and start all workers again: they resume from the chief's last checkpoint.
"""

import contextlib
import functools
import hashlib
import json
import os
import signal
import threading
import time

import keras
import tensorflow as tf

from keras_transformer.keras_internals import reduction_name
from keras_transformer.runs.resuming import StopOnSignal
from keras_transformer.training.progress import steps_made

# How the replicas of one process, and those of several, can add up their gradients.
_REDUCTIONS = {
    "auto": lambda: None,
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical-copy": tf.distribute.HierarchicalCopyAllReduce,
    "one-device": tf.distribute.ReductionToOneDevice,
}
_REDUCTIONS_OF_HOSTS = {
    "auto": tf.distribute.experimental.CommunicationImplementation.AUTO,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
}


def _check_reduction(reduction, choices):
    if reduction not in choices:
        raise ValueError(f"`reduction` must be one of {', '.join(choices)} here. Received: reduction={reduction!r}")


def replicate(devices=None, *, reduction="auto"):
    """A strategy that trains one model on several devices of this machine, in this process.

    Args:
        devices: names of devices, such as `["GPU:0", "GPU:1"]`. Defaults to None: all GPUs, or all CPU devices.
        reduction: how gradients are added up over the devices. `"auto"` is TensorFlow's choice: NCCL between GPUs,
            rings between CPU devices. Where that does not work, as when the first step never ends or losses are not
            finite on some GPUs, try `"hierarchical-copy"`, which copies between GPUs without NCCL, and `"one-device"`,
            which adds up on one device and needs nothing of the machine. `"nccl"` is TensorFlow's older use of NCCL.
            Defaults to `"auto"`.

    Returns:
        A `tf.distribute.MirroredStrategy`.

    Raises:
        ValueError: for another `reduction`, or `"nccl"` where a device is no GPU.
    """
    _check_reduction(reduction, _REDUCTIONS)
    if devices is None:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        devices = [device.name for device in devices]
    if reduction == "nccl" and not all("GPU" in device.upper() for device in devices):
        raise ValueError(f"`reduction` must not be nccl unless all devices are GPUs. Received: devices={devices!r}")
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_REDUCTIONS[reduction]())


def connect(*, reduction="auto"):
    """Join the workers that TF_CONFIG names, and wait for all of them.

    Call it before TensorFlow has computed anything. Prints who is waited for, since the wait can be long.

    Args:
        reduction: how gradients are added up over all replicas: `"nccl"` between GPUs, `"ring"` over gRPC, which works
            wherever the workers have found each other, or `"auto"`, TensorFlow's choice. Defaults to `"auto"`.

    Returns:
        A `tf.distribute.MultiWorkerMirroredStrategy`, with one replica for each GPU of each host, or one for the CPU.

    Raises:
        ValueError: if TF_CONFIG is missing, is not JSON, or does not say who the workers are and which one this is, or
            for another `reduction`.
    """
    _check_reduction(reduction, _REDUCTIONS_OF_HOSTS)
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        task = config["task"]
        config["cluster"][task["type"]][int(task["index"])]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(
            "the environment variable TF_CONFIG must hold the addresses of all workers and the place of this one, as "
            'in {"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={text!r}"
        ) from None
    workers = ", ".join(address for job in config["cluster"].values() for address in job)
    print(f"{task['type']} {task['index']} waits for all of: {workers}", flush=True)
    options = tf.distribute.experimental.CommunicationOptions(implementation=_REDUCTIONS_OF_HOSTS[reduction])
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _is_multi_worker(strategy):
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy):
    """Whether this process is the one that writes; true under any strategy of a single process."""
    if not _is_multi_worker(strategy):
        return True
    resolver = strategy.cluster_resolver
    if resolver.task_type in ("chief", None):
        return True
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "worker" and resolver.task_id == 0 and not has_chief


def describe(strategy):
    """One line for the log: workers, replicas, devices of this process and how gradients are added up."""
    if not tf.distribute.has_strategy() and strategy is tf.distribute.get_strategy():
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return f"one replica, on {devices[0].name}"
    devices = ", ".join(strategy.extended.worker_devices)
    if strategy.num_replicas_in_sync == 1:
        return f"one replica, on {devices}"
    reduction = f"gradients are added up by {reduction_name(strategy)}"
    if not _is_multi_worker(strategy):
        return f"{strategy.num_replicas_in_sync} replicas in one process, on {devices}; {reduction}"
    resolver = strategy.cluster_resolver
    workers = [address for job in resolver.cluster_spec().as_dict().values() for address in job]
    return (
        f"{resolver.task_type} {resolver.task_id}{' (chief)' if is_chief(strategy) else ''} of {len(workers)} workers "
        f"({', '.join(workers)}); {strategy.num_replicas_in_sync} replicas in all, here on {devices}; {reduction}"
    )


def rows_of_worker(dataset, context):
    """The rows of one worker's replicas from a dataset of global batches.

    Each batch of B rows is cut into R parts of ceil(B / R) rows, the last ones with fewer or none, as
    `tf.distribute.MirroredStrategy` does; part r is for replica r.

    Args:
        dataset: `tf.data.Dataset` of global batches, the same on all workers. All leaves have the rows as first axis.
        context: `tf.distribute.InputContext`, which tells the number of replicas and whose rows are wanted.

    Returns:
        A `tf.data.Dataset` with one element for each replica of this worker, for one global batch after the other.
    """
    num_replicas = context.num_replicas_in_sync
    num_here = num_replicas // context.num_input_pipelines
    first = context.input_pipeline_id * num_here

    def parts(*batch):
        num_rows = tf.shape(tf.nest.flatten(batch)[0], out_type="int64")[0]
        size = -(-num_rows // num_replicas)
        return tf.data.Dataset.range(first, first + num_here).map(
            lambda part: tf.nest.map_structure(lambda leaf: leaf[part * size : (part + 1) * size], batch)
        )

    cardinality = dataset.cardinality()
    rows = dataset.flat_map(parts)
    # Keras takes it for a number of steps: right where a step is one element. An endless dataset, if known to be one,
    # spares the workers asking each other before every step whether there is a next one.
    if cardinality == tf.data.INFINITE_CARDINALITY or (cardinality >= 0 and num_here == 1):
        rows = rows.apply(tf.data.experimental.assert_cardinality(cardinality))
    return rows.prefetch(2 * num_here)


def share_rows(dataset, strategy):
    """What to give to `fit` or `evaluate` so that each worker trains on its own rows of each global batch.

    TensorFlow's own sharding, which Keras applies to a plain dataset, either gives whole batches to the workers in
    turn, so that a step is made of several of them, or, switched off, the same rows to all.

    Args:
        dataset: `tf.data.Dataset` of global batches, the same on all workers, such as `Batches.dataset()`.
        strategy: the strategy of the model.

    Returns:
        The dataset itself under a strategy of a single process, else a `tf.distribute.DistributedDataset`.
    """
    if not _is_multi_worker(strategy):
        return dataset
    return strategy.distribute_datasets_from_function(lambda context: rows_of_worker(dataset, context))


@functools.cache
def _gather_function(strategy):
    # A function, made once: without one each call would make its collective operations anew, for a tenth of a second.
    def gather(numbers):
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(numbers[None], axis=0))

    return tf.function(gather)


def _of_all_replicas(strategy, numbers, dtype="int64"):
    """Array [R, N]: the N numbers that each replica's worker has, the chief's first. It waits for all workers."""
    gathered = _gather_function(strategy)(tf.constant(numbers, dtype))
    return strategy.experimental_local_results(gathered)[0].numpy()


@contextlib.contextmanager
def chief_first(strategy):
    """Context whose body the chief runs to its end before any other worker begins it."""
    if not _is_multi_worker(strategy):
        yield
        return
    if is_chief(strategy):
        yield
        _of_all_replicas(strategy, [0])
    else:
        _of_all_replicas(strategy, [0])
        yield


def check_same(strategy, **values):
    """Raise a ValueError on all workers unless every one of them has the same values.

    A worker that does not see the chief's run directory would start at another step than the chief, or with other data,
    and nothing else would tell.

    Args:
        strategy: the strategy of the model.
        **values: JSON data by name, such as `step=...`; the same names in the same order on all workers.
    """
    if not _is_multi_worker(strategy):
        return
    digests = [
        int.from_bytes(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:7], "big")
        for value in values.values()
    ]
    everywhere = _of_all_replicas(strategy, digests)
    differing = [
        f"{name}={value!r}"
        for index, (name, value) in enumerate(values.items())
        if len(set(everywhere[:, index].tolist())) > 1
    ]
    if differing:
        raise ValueError(
            "all workers must begin with the same state, from a run directory that all of them share. "
            f"Received, on {strategy.cluster_resolver.task_type} {strategy.cluster_resolver.task_id} only: "
            + ", ".join(differing)
        )


class FirstStepTime(keras.callbacks.Callback):
    """Prints when the first step begins and how long it took, so that a hang can be told from a slow start.

    Args:
        patience: seconds after which it prints what to look at if the first step is still not done. Defaults to 300.
    """

    def __init__(self, patience=300.0):
        super().__init__()
        self.patience = patience
        self._begin = None
        self._is_done = False
        self._hint = None

    def on_train_begin(self, logs=None):
        self._begin, self._is_done = None, False

    # Not at the end of a batch: Keras would then wait for the device at every step.
    def on_train_batch_begin(self, batch, logs=None):
        if self._is_done:
            return
        if self._begin is None:
            print("First step begins: it makes the graph and waits for all replicas", flush=True)
            self._begin = time.perf_counter()
            self._hint = threading.Timer(self.patience, self._print_hint)
            self._hint.daemon = True  # does not keep a failed process alive
            self._hint.start()
        else:
            steps_made(self.model)  # waits for the device
            self._hint.cancel()
            print(f"First step done after {time.perf_counter() - self._begin:.1f} s", flush=True)
            self._is_done = True

    def on_train_end(self, logs=None):
        if self._hint is not None:
            self._hint.cancel()

    def _print_hint(self):
        print(
            f"First step not done after {self.patience:g} s. XLA may still be compiling a large model (the CPU is busy "
            "then). If it is not: did all workers print that their first step begins? If so, the devices cannot reach "
            "each other: set NCCL_DEBUG=INFO, or NCCL_P2P_DISABLE=1, or choose another reduction",
            flush=True,
        )


class ChiefLogs(keras.callbacks.Callback):
    """Gives all workers what the chief's callbacks have added to the logs of an epoch, such as `"val_bleu"`.

    Only the chief needs to translate then, and `EarlyStopping` decides alike on all workers.

    Args:
        strategy: the strategy of the model.
        names: names of the logs. One that the chief does not have in an epoch no worker has.
    """

    def __init__(self, strategy, names):
        super().__init__()
        self.strategy = strategy
        self.names = tuple(names)

    def on_epoch_end(self, epoch, logs=None):
        if not _is_multi_worker(self.strategy) or logs is None:
            return
        values = [[name in logs, logs.get(name, 0.0)] for name in self.names]
        chief = _of_all_replicas(self.strategy, [float(number) for pair in values for number in pair], "float64")[0]
        for name, present, value in zip(self.names, chief[::2], chief[1::2], strict=True):
            logs.pop(name, None)
            if present:
                logs[name] = float(value)


class StopOnSignalAnywhere(StopOnSignal):
    """`StopOnSignal` for several workers: a signal to one of them stops all of them after the same step.

    A scheduler that ends a job signals its workers one after the other. One that left by itself would leave the others
    waiting in their next step, the chief too if it is among them.

    Args:
        checkpoints: a `Checkpoints` of the model that is trained.
        strategy: the strategy of the model.
        every: ask the other workers before every so many steps of an epoch. Defaults to 1; asking takes some
            milliseconds.
        **kwargs: `signals`, as for `StopOnSignal`.

    Raises:
        ValueError: when `every` is not positive.
    """

    def __init__(self, checkpoints, strategy, *, every=1, **kwargs):
        super().__init__(checkpoints, **kwargs)
        if every < 1:
            raise ValueError(f"`every` must be a positive number of steps. Received: every={every!r}")
        self.strategy = strategy
        self.every = every

    def on_train_batch_begin(self, batch, logs=None):
        if batch % self.every == 0:
            super().on_train_batch_begin(batch, logs)

    def _stop_if_asked(self):
        if _is_multi_worker(self.strategy):
            own = 0 if self._received is None else signal.Signals[self._received].value
            number = int(_of_all_replicas(self.strategy, [own]).max())
            if not number:
                return  # a signal that arrives right here is for the next time, when all are asked
            self._received = signal.Signals(number).name
            self.checkpoints.save(temporary=True)
            _of_all_replicas(self.strategy, [0])  # none leaves before the chief has written
        super()._stop_if_asked()
