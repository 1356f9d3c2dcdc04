"""Fakes of the ports of ingest, in memory. The file parsers have no fake: their tests read real files."""
