"""Detectors and chunkers of other servers: their configuration file, their clients and the messages on the wire.

The detector API that this service offers to others is `guardrails.detector_api`.
"""
