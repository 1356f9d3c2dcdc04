"""Original bytes → text in sections, in a child process that may die.

- `content`: what a parser says of a document; `refusals`: why it may refuse one.
- `detect`: the format, by content; `decode`: bytes → text; then one module a format: `pdf` (with `layout`),
  `markdown`, `html`, `plain`, all of which fill an `outline`.
- `child` runs them, `frames` carries the result, `process` is the worker's end of it.
"""
