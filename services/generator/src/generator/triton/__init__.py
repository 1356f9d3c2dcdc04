"""The client of Triton Inference Servers, over gRPC streams.

Tensors, contracts of backends and failures belong here. Choosing among servers belongs in `generator.routing`.
"""
