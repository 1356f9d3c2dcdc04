"""Counts the Python function calls of the retriever, over an index on disk."""

import tempfile
from pathlib import Path
from typing import Any

from causeway.retriever.v1 import retriever_pb2
from causeway_testing.loopback import LoopbackContext
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.servicer import RetrieverServicer
from retriever.stores.edge.store import EdgeStore
from servicekit.principal import LOCAL

from call_counting.profiler import calls
from call_counting.texts import text

_CANDIDATES = 100


async def counts() -> dict[str, float]:
    """Return the number of Python function calls for a search."""
    return {"retriever, a search": await _searching()}


async def _searching() -> float:
    with tempfile.TemporaryDirectory(prefix="causeway-calls-") as directory:
        scheduler = Scheduler()
        bench = await Bench.open(EdgeStore(Path(directory), scheduler), scheduler)
        try:
            for at in range(40):
                document = Document(f"d{at}", f"guide-{at}.pdf", generation=1, sha256=f"{at:064x}")
                await bench.put(document, [text(at * 5 + chunk) for chunk in range(5)])
            nothing: Any = None  # a search does not use these collaborators
            servicer = RetrieverServicer(bench.retrieval, nothing, nothing, nothing, nothing, nothing)
            request = retriever_pb2.RetrieveRequest(
                principal=LOCAL.to_proto(), indexes=[INDEX], query="ferry to the harbour", top=_CANDIDATES
            )

            async def work() -> None:
                response = await servicer.Retrieve(request, LoopbackContext())  # type: ignore[arg-type]  # has the members that it uses
                assert len(response.passages) == _CANDIDATES

            return await calls(work)
        finally:
            await bench.aclose()
