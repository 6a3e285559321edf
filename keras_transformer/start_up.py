"""TensorFlow started as a program wants it: fast on every CPU, and without its notes to whoever built it."""

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

# What TensorFlow 2.21 writes to standard error before its log level counts.
_NOTES = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IW]\d{4} .* (cpu_feature_guard|port)\.cc:"
    rb"|To enable the following instructions:"
)
# The same of GPUs. Where there is none, that none was found is no news.
_NOTES_OF_GPUS = re.compile(rb"[IWE]\d{4} .* (cudart_stub|cuda_platform|cuda_executor)\.cc:")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia")


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
    """Within it, standard error goes through a process of its own that leaves the notes out.

    Libraries write to the descriptor, past Python; and what they write last, before they end the process, counts most.
    """
    if "tensorflow" in sys.modules:  # nothing is left to be hidden, and a process with threads is not to be forked
        yield
        return
    sys.stderr.flush()
    screen = os.dup(2)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to heed
        os.close(writing)
        _pass_on(reading, screen)
        os._exit(0)
    os.close(reading)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(screen, 2)
        os.close(screen)
        os.waitpid(child, 0)


def _pass_on(reading, writing):
    """Copy lines from one descriptor to another but for the notes."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            is_note = _NOTES.match(line) or (_NOTES_OF_GPUS.match(line) and not _NVIDIA_DRIVER.exists())
            if not is_note:
                os.write(writing, line)
