"""The ingest service: it turns jobs with files and texts into documents of an index.

`main` composes it. Jobs are in `jobs`, documents in `documents`, formats in `parsing` and URLs in `web`.
The clients of NATS and of the retriever are in `adapters`.
"""
