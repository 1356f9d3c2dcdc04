"""The modules of the supported formats. Each module yields the head and the pages of a document.

Shared code is in `ingest.parsing.text` and `ingest.parsing.office`. `ingest.parsing.detect` selects the format.
"""
