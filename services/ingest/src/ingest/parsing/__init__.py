"""Turns the bytes of an original into text in sections, in a child process that may crash.

- `content` has the types of a parser's output. `refusals` has the errors of a parser.
- `detect` finds the format by the content, with `containers` for binary files. `registry` lists the formats, and
  `readers` loads their modules.
- `formats` has one module for each format. `office`, `mail` and `text` have the code that formats share, and
  `archives` unpacks ZIP and tar archives.
- `scans` prepares pictures for text recognition. `page_images` finds the images on PDF pages, and `forms` reads the
  fields of PDF forms.
- `child` runs the parsers, `frames` transfers the results, `process` is the client in the worker. `short_text`
  decides which texts need no fork of the child.

Further processing of the text belongs in `ingest.documents`.
"""
