"""One module for each format that is read; each yields the head and the pages of a document.

What several formats share is in `ingest.parsing.text` and `ingest.parsing.office`. No format detects itself here.
"""
