"""Original bytes → text in sections, in a child process that may die.

- `content`: what a parser says of a document; `refusals`: why it may refuse one.
- `detect`: which of the `formats`, by content, with `containers` for binary files; `decode`: bytes → text.
- One module a format, all of which fill an `outline`: `pdf` (with `layout`), `word` (with `numbering`), `slides`,
  `workbook`, `html`, `markdown`, `delimited`, `records`, `code` (with `languages`), `plain`. What they share:
  `tables` and `grids` for rows, `charts`, `ooxml` for what Office documents are made of.
- `child` runs them, `frames` carries the result, `process` is the worker's end of it.
"""
