"""Parsers of untrusted JSON, YAML and XML, and the child process that runs them.

The detector `guardrails.detectors.file_type` uses them.
"""
