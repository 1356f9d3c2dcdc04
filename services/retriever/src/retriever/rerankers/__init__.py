"""Rerankers: models that read a query and a passage together and say how well the one answers the other.

- `port`: what the retriever asks of one; `guarded`: time outs, turns and rests, the same for all.
- `file`: ``rerankers.yaml``; `http` and `triton`: the servers that models are behind; `fake`, `testing`: for tests.
- `rerankers`: all that are configured; `reranking`: what a search does with one.
"""
