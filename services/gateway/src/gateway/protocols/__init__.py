"""One module per public wire format: a request becomes a `Turn`, events become the format's own JSON.

No dialect knows another; what they share is below them: `exchange` (the port that the routes call), `reading`
(checked access to JSON), `answer` (events gathered for an answer in one piece), `detectors` (the block that every
dialect takes).
"""
