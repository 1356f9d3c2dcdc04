"""The ingest service: jobs with files and texts become documents of an index.

`main` composes it. Jobs are in `jobs`, documents in `documents`, formats in `parsing` and URLs in `web`.
What speaks to NATS and to the retriever is in `adapters`.
"""
