"""Runs jobs from the queue: heartbeats, retries, dead letters, metrics.

`ingest.documents` handles the documents of a job, and `ingest.adapters` implements the queue.
"""
