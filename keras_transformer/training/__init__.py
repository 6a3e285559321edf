"""What `fit` is given: loss, metrics, optimizer, schedule, callbacks, checkpoints."""
