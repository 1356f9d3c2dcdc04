"""Parsers of untrusted JSON, YAML and XML, and the child process that runs them.

The detector that uses them is `guardrails.detectors.file_type`.
"""
