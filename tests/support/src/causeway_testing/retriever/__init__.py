"""Fakes of the retriever's store, of Qdrant and of rerankers, and the retriever's services on any store."""
