"""The API of the FMS guardrails orchestrator: completions with detections, and detection without a model.

This package only parses requests and renders answers. The package `answering` calls the detectors.
"""
