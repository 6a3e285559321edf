"""The model in the files of other engines."""
