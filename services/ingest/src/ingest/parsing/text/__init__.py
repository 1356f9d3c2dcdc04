"""Code that several formats share: decoding, clean-up, headings, paragraphs and table rows."""
