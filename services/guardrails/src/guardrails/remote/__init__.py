"""Remote detectors and chunkers: their configuration file, their clients and their messages.

`guardrails.detector_api` serves the detector API to other systems.
"""
