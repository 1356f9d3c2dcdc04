"""The model that needs no weights: it answers with the best sentences of the sources."""
