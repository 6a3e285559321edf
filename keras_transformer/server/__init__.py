"""TensorFlow Serving's protocols in this process, and a page: the served versions, batches, REST, gRPC, metrics."""
