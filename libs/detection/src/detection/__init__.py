"""Judges texts with detectors, in the guardrails service and in the gateway.

Rules, growing texts and the detectors that only search for patterns belong here. Transports, and detectors that
need a model, a process, a server or a large library, belong in the guardrails service.
"""
