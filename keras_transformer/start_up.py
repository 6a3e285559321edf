"""TensorFlow started as a program wants it: fast on every CPU, and without its notes to whoever built it."""

import contextlib
import os
import re
import sys
import tempfile

# What TensorFlow 2.21 writes to standard error before its log level counts, on a machine without a GPU.
_NOTES = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IWE]\d{4} .* (cudart_stub|cpu_feature_guard|port|cuda_platform|cuda_executor)\.cc:"
    rb"|To enable the following instructions:"
)


def start_tensorflow():
    """Import TensorFlow and look for devices, without the notes that come with it; other lines stay.

    Call it before anything imports TensorFlow. Sets, unless they are set: `TF_ENABLE_ONEDNN_OPTS=1`, which is twice the
    speed on CPUs where it is not TensorFlow's default, and `TF_CPP_MIN_LOG_LEVEL=2`, errors only.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with _without_notes():
        import tensorflow as tf

        tf.config.list_physical_devices()  # which writes the last notes; it sets up no device


@contextlib.contextmanager
def _without_notes():
    """Within it, what libraries write to standard error is held back; afterwards all but the notes is written."""
    sys.stderr.flush()
    screen = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(screen, 2)
            os.close(screen)
            held.seek(0)
            for line in held:
                if not _NOTES.match(line):
                    os.write(2, line)
