"""Access lists apply to every call and every search mode."""

import itertools
from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.domain.access import caller_tokens, document_tokens, may_see
from retriever.domain.changes import Outcome
from retriever.domain.document import AccessControl, Document
from retriever.domain.filter import NO_FILTER
from retriever.domain.listing import PageRequest
from retriever.domain.query import Mode
from servicekit.errors import NotFound, PermissionDenied
from servicekit.principal import Principal

SECRET = AccessControl(oids=("ann",), groups=("crew",))
STRANGERS = [
    Principal("local"),
    Principal("local", user="ann", roles=("ask", "ingest")),
    Principal("local", oids=("bob", "crew"), groups=("ann", "*")),
]
INSIDERS = [
    Principal("local", oids=("ann",)),
    Principal("local", groups=("x", "crew")),
    Principal("local", roles=("admin",)),
]


@pytest.fixture
async def harbour(bench: Bench) -> Bench:
    """Fill an index with a public and a secret document on the same subject."""
    await bench.put(Document("public", generation=1), ["the ferry leaves at nine"])
    await bench.put(Document("secret", generation=1, access=SECRET), ["the secret ferry leaves at midnight"] * 3)
    return bench


def test_a_caller_needs_a_token_of_the_document() -> None:
    """Oids match oids, and groups match groups. Every caller may see a document without lists."""
    assert not any(may_see(stranger, SECRET) for stranger in STRANGERS)
    assert all(may_see(insider, SECRET) for insider in INSIDERS)
    assert all(may_see(principal, AccessControl()) for principal in STRANGERS + INSIDERS)
    assert caller_tokens(Principal("local", roles=("admin",))) is None
    assert document_tokens(SECRET) == ["oid:ann", "group:crew"]


LIMITS: list[dict[str, Any]] = [{}, {"minimum_dense_score": -1.0}, {"skip_missing_scores": True}, {"top": 1}]


async def test_a_stranger_does_not_find_a_secret_document(harbour: Bench) -> None:
    """In every mode a stranger finds only the public document, even if the secret one matches better."""
    for mode, limits in itertools.product(Mode, LIMITS):
        for stranger in STRANGERS:
            passages = await harbour.ask("secret ferry midnight", stranger, mode=mode, **limits)
            assert {passage.document.document_id for passage in passages} == {"public"}
        for insider in INSIDERS:
            passages = await harbour.ask("secret ferry midnight", insider, mode=mode, **limits)
            assert passages[0].document.document_id == "secret"


async def test_a_stranger_cannot_read_a_secret_document(harbour: Bench) -> None:
    """For a stranger the secret document does not exist, and the index's counts do not include it."""
    for stranger in STRANGERS:
        with pytest.raises(NotFound):
            await harbour.catalogue.document(stranger, INDEX, "secret")
        page = await harbour.catalogue.documents(stranger, INDEX, NO_FILTER, PageRequest())
        assert ([document.document_id for document in page.documents], page.total) == (["public"], 1)
        (summary,) = await harbour.catalogue.indexes(stranger)
        assert (summary.documents, summary.chunks) == (1, 1)
    for insider in INSIDERS:
        assert (await harbour.catalogue.document(insider, INDEX, "secret")).chunk_count == 3
        (summary,) = await harbour.catalogue.indexes(insider)
        assert (summary.documents, summary.chunks) == (2, 4)


async def test_a_stranger_cannot_change_a_secret_document(harbour: Bench) -> None:
    """A stranger can neither delete nor replace the document, nor delete its index."""
    for stranger in STRANGERS:
        deleted = await harbour.catalogue.delete_documents(stranger, INDEX, ["secret"])
        assert (deleted.documents, deleted.not_found) == ((), ("secret",))
        with pytest.raises(PermissionDenied):
            await harbour.put(Document("secret", generation=2), ["mine"], principal=stranger)
        with pytest.raises(PermissionDenied):
            await harbour.catalogue.delete_index(stranger, INDEX)
    assert len(await harbour.ask("secret ferry", mode=Mode.TEXT)) == 4
    await harbour.catalogue.delete_index(INSIDERS[0], INDEX)


async def test_an_upsert_for_other_users_can_be_repeated(harbour: Bench) -> None:
    """A worker may repeat an upsert of a document that it may not see. Other content is refused."""
    document = Document("for others", sha256="0" * 64, generation=3, access=SECRET)
    assert (await harbour.put(document, ["a"], principal=STRANGERS[0])).outcome is Outcome.CREATED
    assert (await harbour.put(document, ["a"], principal=STRANGERS[0])).outcome is Outcome.UNCHANGED
    with pytest.raises(PermissionDenied):
        await harbour.put(Document("for others", sha256="1" * 64, generation=3), ["a"], principal=STRANGERS[0])


async def test_tenants_are_separate(harbour: Bench) -> None:
    """Another tenant's administrator does not find this index, and may create one of the same name."""
    other = Principal("other", roles=("admin",))
    with pytest.raises(NotFound):
        await harbour.ask("ferry", other)
    assert await harbour.catalogue.indexes(other) == []
    await harbour.put(Document("public", generation=9), ["another ferry"], principal=other)
    (passage,) = await harbour.ask("ferry", other)
    assert passage.text == "another ferry"
    await harbour.catalogue.delete_index(other, INDEX)
    assert len(await harbour.ask("ferry")) == 4
