"""Text of pictures: what is written on pages that a scanner made, and in pictures of documents.

`child` recognises the lines of a picture, in a process and an environment of its own. `recogniser` asks it. `lines`
makes paragraphs of the lines. `reading` puts their text in the place of pictures that a parser yields.
"""
