"""Trained models in the formats of other inference engines."""
