"""Translate lines over REST: TensorFlow Serving, or `python -m keras_transformer serve`. Needs only Python itself.

    python client_rest.py --model en-de < text.en > text.de
    python client_rest.py --model en-de "The old woman saw the boy."

A line out for each line in, in order. With --n-best several: "number ||| translation ||| log_probability= X ||| score",
numbers counted from 0. Lines that were cut are named on standard error, counted from 1. Exit status: 0; 1 the server
answered an error; 2 wrong arguments; 3 no server, or no answer in time. What was written until then is complete.
"""

import argparse
import base64
import itertools
import json
import os
import sys
import urllib.parse
import urllib.request


def predict(url, signature, lines, timeout):
    """The outputs of each line by name, or an exit status and a message."""
    text = [{"b64": base64.b64encode(line).decode("ascii")} for line in lines]  # a JSON string would have to be UTF-8
    body = json.dumps({"signature_name": signature, "inputs": {"text": text}}).encode("ascii")
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            outputs = json.load(response)["outputs"]
        return [{name: rows[i] for name, rows in outputs.items()} for i in range(len(outputs["truncated"]))], 0, ""
    except urllib.error.HTTPError as error:
        return [], 1, f"{error.code} {error.reason}: {error.read().decode('utf-8', 'replace').strip()}"
    except OSError as error:
        return [], 3, f"no answer from {url}: {getattr(error, 'reason', error)}"
    except Exception as error:  # not HTTP, not JSON, not an answer of this kind
        return [], 1, f"no translations in the answer from {url}: {error!r}"


def show(number, row, n_best):
    if "translations" in row:
        places = range(max(1, min(n_best, row["num_translations"])))
        for i in places:
            values = f"log_probability= {row['log_probabilities'][i]:.6f} ||| {row['scores'][i]:.6f}"
            print(f"{number - 1} ||| {' '.join(row['translations'][i].splitlines())} ||| {values}")
        finished = all(row["finished"][i] for i in places)
    else:
        print(" ".join(row["translation"].splitlines()))
        finished = row["finished"]
    if row["truncated"]:
        print(f"line {number}: too long for the model, cut before it was translated", file=sys.stderr)
    if not finished:
        print(f"line {number}: the translation was cut at the limit on its length", file=sys.stderr)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("text", nargs="*", help="lines to translate; without any, those of standard input")
parser.add_argument("--url", default="http://127.0.0.1:8501", help="of the server (%(default)s)")
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
version = "" if options.version is None else f"/versions/{options.version}"
url = f"{options.url.rstrip('/')}/v1/models/{urllib.parse.quote(options.model, safe='')}{version}:predict"
sys.stdout.reconfigure(encoding="utf-8")
lines = enumerate(map(os.fsencode, options.text) if options.text else sys.stdin.buffer, 1)
while batch := list(itertools.islice(lines, options.batch_size)):
    text = [line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf" * (number == 1)) for number, line in batch]  # no BOM
    rows, status, message = predict(url, signature, text, options.timeout)
    if status:
        print(f"lines {batch[0][0]} to {batch[-1][0]}: {message}", file=sys.stderr)
        sys.exit(status)
    for row, (number, _) in zip(rows, batch, strict=True):
        show(number, row, options.n_best)
    sys.stdout.flush()
