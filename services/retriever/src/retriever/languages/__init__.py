"""Language detection for text search, which tokenizes and stems by language."""
