"""What `fit` is given: loss, metrics, schedule, callbacks, checkpoints."""
