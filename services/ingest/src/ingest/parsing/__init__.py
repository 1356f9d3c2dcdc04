"""Original bytes → text in sections, in a child process that may die.

- `content` is what a parser says of a document; `refusals` is why it may refuse one.
- `detect` finds the format by content, with `containers` for binary files; `registry` lists the formats, and
  `readers` loads their modules.
- `formats` has one module for each format; `office` and `text` have what they share.
- `child` runs them, `frames` carries the result, `process` is the worker's end of it.

The fate of the text belongs to `ingest.documents`.
"""
