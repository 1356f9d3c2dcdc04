"""The languages of documents, by which text search cuts and stems their words."""
