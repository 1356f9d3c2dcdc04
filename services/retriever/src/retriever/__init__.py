"""The retriever service. It alone reads and writes the vector store and the document catalogue.

- A search: `servicer` (wire to domain) → `search.retrieval` (embed, search, fuse, rerank) → `ports.store` ←
  `stores.edge` or `stores.qdrant`.
- An upsert: `servicer` → `documents.upsert` → `documents.versions` → `indexes.lifecycle` → `ports.store`.
- A compaction: `stores.edge.compaction` → `stores.edge.shard` (copy, replay, swap) and `stores.edge.builder`, whose
  child process is `stores.edge.build_child`.
"""
