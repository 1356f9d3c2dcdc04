"""The retriever service: the one owner of the vector store and of the document catalogue.

How a search flows: `servicer` (wire to domain) → `retrieval` (embed, search dense and sparse, `fusion`) →
`store.port` ← `store.edge`. How a document comes in: `servicer` → `upsert` → `versions` → `indexes` → `store.port`.
How an index is compacted: `store.compaction` → `store.edge_shard` (copy, replay, swap) and `store.building`, whose
child process is `store.build`; `snapshots` go the same way.
"""
