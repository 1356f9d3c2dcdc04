"""Judging texts under the rules of a request: whole texts, and the choices of an answer while they grow.

Rules, held-back text, calls of detectors and their metrics belong here. gRPC, HTTP and the detectors
themselves do not.
"""
