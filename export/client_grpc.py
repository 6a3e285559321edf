"""Translate lines over gRPC: TensorFlow Serving, or `python -m keras_transformer serve --grpc-port 8500`.
Needs `pip install tensorflow-serving-api`. Arguments, output and exit status are those of client_rest.py.

    python client_grpc.py --model en-de < text.en > text.de
"""

import argparse
import importlib.util
import itertools
import os
import sys

import grpc

# The messages are built on some of TensorFlow's, not on TensorFlow: its package, left unexecuted, saves seconds.
sys.modules["tensorflow"] = importlib.util.module_from_spec(importlib.util.find_spec("tensorflow"))
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc  # noqa: E402


def read(tensor):
    """The rows of a tensor: its values are in a field of their type, one after the other."""
    values = getattr(tensor, {1: "float_val", 3: "int_val", 7: "string_val", 10: "bool_val"}[tensor.dtype])
    num_rows, *width = [dim.size for dim in tensor.tensor_shape.dim]
    return [values[row * width[0] : (row + 1) * width[0]] for row in range(num_rows)] if width else values


def one_line(text):
    return " ".join(text.decode("utf-8").splitlines())


def show(number, row, n_best):
    if "translations" in row:
        places = range(max(1, min(n_best, row["num_translations"])))
        for i in places:
            values = f"log_probability= {row['log_probabilities'][i]:.6f} ||| {row['scores'][i]:.6f}"
            print(f"{number - 1} ||| {one_line(row['translations'][i])} ||| {values}")
        finished = all(row["finished"][i] for i in places)
    else:
        print(one_line(row["translation"]))
        finished = row["finished"]
    if row["truncated"]:
        print(f"line {number}: too long for the model, cut before it was translated", file=sys.stderr)
    if not finished:
        print(f"line {number}: the translation was cut at the limit on its length", file=sys.stderr)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("text", nargs="*", help="lines to translate; without any, those of standard input")
parser.add_argument("--address", default="127.0.0.1:8500", help="of the server (%(default)s)")
parser.add_argument("--model", default="en-de", help="its name on the server (%(default)s)")
parser.add_argument("--version", type=int, help="of the model; the newest if left out")
parser.add_argument("--signature", help="another one that takes `text` alone, as alignments does")
parser.add_argument("--n-best", type=int, default=1, help="translations a line, at most as many as the export gives")
parser.add_argument("--batch-size", type=int, default=32, help="lines a request (%(default)s); 1 answers each at once")
parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for each answer (%(default)s)")
options = parser.parse_args()
if min(options.n_best, options.batch_size) < 1 or options.timeout <= 0:
    parser.error("--n-best, --batch-size and --timeout must be positive")
signature = options.signature or ("n_best" if options.n_best > 1 else "serving_default")
sys.stdout.reconfigure(encoding="utf-8")
lines = enumerate(map(os.fsencode, options.text) if options.text else sys.stdin.buffer, 1)
stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(options.address))
version = None if options.version is None else {"value": options.version}
spec = {"name": options.model, "signature_name": signature, "version": version}
while batch := list(itertools.islice(lines, options.batch_size)):
    text = [line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf" * (number == 1)) for number, line in batch]  # no BOM
    tensor = {"dtype": 7, "tensor_shape": {"dim": [{"size": len(text)}]}, "string_val": text}  # 7 is DT_STRING
    try:
        request = predict_pb2.PredictRequest(model_spec=spec, inputs={"text": tensor})
        outputs = stub.Predict(request, timeout=options.timeout).outputs
    except grpc.RpcError as error:
        print(f"lines {batch[0][0]} to {batch[-1][0]}: {error.code().name}: {error.details()}", file=sys.stderr)
        sys.exit(3 if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED") else 1)
    if "truncated" not in outputs:
        sys.exit(f"lines {batch[0][0]} to {batch[-1][0]}: no translations in the answer, but {', '.join(outputs)}")
    columns = {name: read(tensor) for name, tensor in outputs.items()}
    for row, (number, _) in enumerate(batch):
        show(number, {name: values[row] for name, values in columns.items()}, options.n_best)
    sys.stdout.flush()
