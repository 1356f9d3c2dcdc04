"""Text and its structure: decoding, clean-up, headings, paragraphs and rows of tables.

Nothing here belongs to one format of files alone.
"""
