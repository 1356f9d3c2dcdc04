"""Sentence boundaries of plain text, for all services that split text.

The modules use only the standard library. Tokenizers, document formats and models belong to other packages.
"""
