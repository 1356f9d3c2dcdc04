"""Backups of a whole installation: a folder with NATS' streams and the retriever's indexes (docs/backup.md)."""
