"""Creates the rerankers of a configuration file with their clients."""

from collections.abc import Mapping
from pathlib import Path

from servicekit.yaml_file import setting_errors

from retriever.clients import reranker_file
from retriever.ports.reranker import Reranker
from retriever.rerankers.registry import Rerankers
from retriever.rerankers.resilience import ResilientReranker


def open_rerankers(path: Path | None, environ: Mapping[str, str]) -> Rerankers:
    """Return the rerankers of a file, or an empty registry without a file. A reranker connects at its first call.

    Raises:
        InvalidRequest: The file cannot be used; the message has file, line and key.
    """
    if path is None:
        return Rerankers()
    with setting_errors("rerankers_file"):
        return Rerankers([_resilient(entry) for entry in reranker_file.read(path, environ)])


def _resilient(entry: reranker_file.Entry) -> ResilientReranker:
    return ResilientReranker(
        _client(entry),
        entry.name,
        candidates=entry.candidates,
        required=entry.required,
        timeout=entry.timeout,
        concurrency=entry.concurrency,
        rest=entry.rest,
    )


def _client(entry: reranker_file.Entry) -> Reranker:
    # Imported here, because each client imports a library that other configurations do not need.
    if isinstance(entry, reranker_file.HttpEntry):
        from retriever.clients.http_reranker import HttpReranker

        return HttpReranker(entry)
    from retriever.clients.triton_reranker import TritonReranker

    return TritonReranker(entry)
