"""Requests that a server answers for itself when it loads an export, so that no user meets a cold model.

The first run of a signature, and of a shape, is slower than those that follow: TensorFlow prepares the graph for the
one and kernels for the other. TensorFlow Serving replays what it finds in an export's
`assets.extra/tf_serving_warmup_requests` before it says that a version is available, and refuses a version whose
requests fail.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID, UNKNOWN_ID

WARM_UP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"

# (rows, tokens) for the default signature, which servers batch; the others get a request of one row.
_SHAPES = ((1, 7), (1, 23), (8, 23), (32, 23))
_OTHER_SHAPE = (1, 7)


def warm_up_requests(signatures, tokenizer):
    """Yield requests for some signatures, `(name, inputs)`, with text that the tokenizer knows.

    Args:
        signatures: mapping from the name of a signature to its inputs, a mapping of `tf.TensorSpec`s.
        tokenizer: a `Tokenizer`.
    """
    for name, inputs in signatures.items():
        for num_rows, num_tokens in _SHAPES if name == "serving_default" else (_OTHER_SHAPE,):
            ids = _ids(tokenizer, num_rows, num_tokens)
            texts = np.array([tokenizer.decode(row).encode("utf-8") for row in ids], object)
            values = {}
            for argument, specification in inputs.items():
                if argument == "source_ids":
                    values[argument] = ids
                elif argument != "prefix" and specification.dtype == tf.string:
                    values[argument] = texts
                else:
                    nothing = b"" if argument == "prefix" else 0
                    values[argument] = np.full([num_rows], nothing, specification.dtype.as_numpy_dtype)
            yield name, values


def write_warm_up(directory, requests):
    """Write requests, `(signature name, inputs)`, to where TensorFlow Serving looks for them in an export."""
    path = Path(directory) / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for argument, values in inputs.items():
                request.inputs[argument].CopyFrom(tf.make_tensor_proto(values))
            writer.write(log.SerializeToString(deterministic=True))


def read_warm_up(directory):
    """Yield the requests of an export, `(signature name, inputs)`; none if it has no such file.

    Raises:
        ValueError: if one is no request to predict.
    """
    path = Path(directory) / WARM_UP_FILE
    if not path.is_file():
        return
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        if kind != "predict_log":
            raise ValueError(f"A warm-up request must be a `predict_log`. Received: `{kind}` in {path}")
        request = log.predict_log.request
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        yield request.model_spec.signature_name, inputs


def _ids(tokenizer, num_rows, num_tokens):
    """Return pieces from all over the vocabulary, int32 [rows, tokens]; the same every time."""
    special = {PAD_ID, UNKNOWN_ID, START_ID, END_ID}
    ordinary = [
        token
        for token in range(tokenizer.vocabulary_size)
        if token not in special and tokenizer.decode([token]).isalpha()
    ]
    places = np.linspace(0, len(ordinary) - 1, num_rows * num_tokens).astype(int)
    return np.array(ordinary, "int32")[places].reshape(num_rows, num_tokens)
