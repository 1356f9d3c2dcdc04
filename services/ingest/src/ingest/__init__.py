"""The ingest service: its workers turn jobs with files and texts into documents of an index.

`main` creates and connects its parts. Jobs are in `jobs`, documents in `documents`, formats in `parsing` and URLs
in `web`. The clients of NATS and of the retriever are in `adapters`.
"""
