"""The structure of plain text, for every service that cuts text: sentences.

A module here depends on the standard library alone. Tokenizers, formats of documents and models do not belong here.
"""
