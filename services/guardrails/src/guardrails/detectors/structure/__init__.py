"""Parsers of untrusted JSON, YAML and XML, and the child process that they run in.

What the detector finds with them belongs to `guardrails.detectors.file_type`.
"""
