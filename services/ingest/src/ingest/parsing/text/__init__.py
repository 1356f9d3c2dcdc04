"""Text and its structure: decoding, clean-up, headings, paragraphs and table rows.

This code is shared by several formats.
"""
