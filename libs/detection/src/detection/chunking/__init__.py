"""Splits a growing text into the windows that a detector judges.

Chunkers and windows belong here. Calls to remote chunkers belong in `guardrails.remote`.
"""
