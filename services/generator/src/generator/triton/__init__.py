"""The client of Triton Inference Servers, over gRPC streams.

Tensors, contracts of backends and failures belong here. Code that selects a server belongs in `generator.routing`.
"""
