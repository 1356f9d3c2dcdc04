"""The API of the FMS guardrails orchestrator: completions with detections, and detection without a model.

The detectors, and how they judge an answer, do not belong here (`answering`, the guardrails service).
"""
