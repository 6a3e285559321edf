"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) for TensorFlow and Keras 3."""

__version__ = "0.1.0"
