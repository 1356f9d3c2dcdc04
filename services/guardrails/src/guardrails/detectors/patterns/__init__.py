"""Searching whole and growing texts for regular expressions, in linear time.

The engine, the matcher and the detector that others configure belong here. A detector that requests can name
belongs in `guardrails.detectors`.
"""
