"""The services of the retriever on any store, the fake store, a simulated Qdrant server, and rerankers."""
