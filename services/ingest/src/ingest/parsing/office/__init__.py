"""What Word, PowerPoint and Excel files share: the package, charts and the numbering of paragraphs.

The formats themselves are in `ingest.parsing.formats`.
"""
