"""Text recognition (OCR) for scanned pages and for pictures in documents.

`child` recognises the lines of a picture, in a separate process and environment. `recogniser` is its client.
`lines` turns the lines into paragraphs. `reading` replaces the pictures in a parser's output by their text.
"""
