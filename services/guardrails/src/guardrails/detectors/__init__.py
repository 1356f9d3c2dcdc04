"""The built-in detectors, one module each, and the interfaces that all detectors implement.

A detector knows only texts and its parameters. The actions for its findings belong in `guardrails.moderation`.
"""
