"""The search: candidates, fusion, and the steps after them (diversity, neighbours, captions).

`retrieval` runs the steps. `rerankers` has the rerankers. `embedding` embeds the query.
"""
