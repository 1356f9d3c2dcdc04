"""The API of the FMS guardrails orchestrator: completions with detections, and detection without a model.

`answering` and the guardrails service contain the detectors.
"""
