"""The life of a job: taken off the queue, heartbeats, retries, dead letters, metrics.

What happens to a document in a job is in `ingest.documents`; how the queue is made is in `ingest.adapters`.
"""
