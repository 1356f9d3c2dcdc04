"""Searches whole and growing texts for regular expressions, in linear time.

The engine, the matcher and the detector that other modules configure belong here. Detectors that requests can name
belong in `guardrails.detectors`.
"""
