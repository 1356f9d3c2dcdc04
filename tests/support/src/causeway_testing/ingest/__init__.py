"""The ports of ingest in memory, and a web without a network. Parsers are not faked: tests read real files."""
