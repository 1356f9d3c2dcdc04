"""Judges texts by the rules of a request: whole texts, and the growing choices of an answer.

Rules, held-back text, calls of detectors and their metrics belong here. gRPC, HTTP and the detectors
themselves do not.
"""
