"""One module per public wire format: a request becomes a `Turn`, events become the format's own JSON.

No dialect knows another; what they share is below them: `exchange` (the port that the routes call), `reading`
(checked access to JSON), `answer` (events gathered for an answer in one piece), `detectors` (the block that every
dialect takes). The stages of the RAG chat protocol, ``chat_*``, share more: `conversation` and `overrides` (a
request's messages and settings), `form` (files beside them), `lines` and `context` (what answers hold),
`completion_lines` (the first stages' answers) and `azure_js` (a client with habits of its own).
"""
