"""The ports of ingest in memory, and a web without a network. Parsers have no fake: tests read real files."""
