"""The services of the retriever on any store, the fake store, a stand-in for a Qdrant server, and rerankers."""
