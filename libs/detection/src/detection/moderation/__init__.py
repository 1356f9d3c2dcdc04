"""Judges texts by the rules of a request: whole texts, and the growing choices of an answer.

Rules, held-back text, calls of detectors and their metrics belong here. Detectors belong in `detection.detectors`;
gRPC and HTTP belong in the services.
"""
