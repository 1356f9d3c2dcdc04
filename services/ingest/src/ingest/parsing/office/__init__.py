"""Shared code of the Office formats: packages, charts, pictures and the numbering of paragraphs.

The formats themselves are in `ingest.parsing.formats`.
"""
