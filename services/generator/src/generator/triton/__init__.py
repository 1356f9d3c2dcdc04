"""Models of a Triton Inference Server, over its gRPC streams."""
