"""The languages of documents and of queries, which text search cuts and stems words by."""
