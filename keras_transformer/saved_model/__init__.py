"""The export: a TensorFlow SavedModel with the tokenizer inside, written and read back."""
