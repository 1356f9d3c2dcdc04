import base64
import hashlib
import re
import uuid
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from servicekit import keys, nats
from servicekit.errors import InvalidRequest

ODD = [
    "",
    " ",
    ".",
    "..",
    "*",
    ">",
    "@",
    "|",
    "/",
    "\\",
    "a b",
    "a.b",
    "a.*.>",
    "Müller & Söhne",
    "漢字",
    "🌊" * 40,
    "\n\r\0",
    "$SYS",
    "-",
    "_",
    "=",
    "x" * 10_000,
    "PUB a 0\r\n\r\n",
]
name = st.sampled_from(ODD) | st.text(max_size=80) | st.text(alphabet=st.characters(), max_size=8)
pair = st.tuples(name, name)


def _subject(tenant: str, index: str) -> str:
    return keys.ingest_subject(2, tenant, index)


BUILDERS = [keys.collection, _subject, keys.ingest_dead_subject, keys.job_key]


@given(name, name)
@example("", "-")
@example("x" * 64, "x" * 65)
@example("\ud800", "\udfff")
def test_two_texts_never_share_a_token(one: str, other: str) -> None:
    """A token identifies its text, for any characters and any length."""
    assert (keys.token(one) == keys.token(other)) == (one == other)


@given(name)
def test_a_token_is_short_and_plain(text: str) -> None:
    """A token has at most 86 letters, digits and ``-_=``, without a dot or a wildcard, and is a valid file name."""
    assert re.fullmatch(r"[A-Za-z0-9_=-]{1,86}", keys.token(text))


def test_tokens_of_a_long_text_and_its_digest_differ() -> None:
    """A text that looks like a long text's token has another token."""
    assert keys.token(keys.token("x" * 1000)) != keys.token("x" * 1000)


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
@given(one=pair, other=pair)
def test_two_owners_never_share_a_name(build: object, one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two tenants, and two objects of a tenant, never have the same directory, subject or key."""
    assert callable(build)
    assert (build(*one) == build(*other)) == (one == other)


@given(st.tuples(name, name), st.tuples(name, name))
def test_two_holders_of_quotas_never_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    """A key names the holder and the replica that reported it. A replica's own key names no holder."""
    holder = keys.quota_holder("key", *one)
    assert (holder == keys.quota_holder("key", *other)) == (one == other)
    assert holder != keys.quota_holder("user", *one)
    assert keys.quota_parts(keys.quota_key("replica-1", holder)) == ("replica-1", holder)
    assert keys.quota_parts(keys.quota_replica_key("replica-1")) == ("replica-1", "")


@given(st.tuples(name, name, name), st.tuples(name, name, name))
def test_two_conversations_never_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Two conversations have different keys, in lists and for messages. A user's pattern matches no other user's
    keys.
    """
    assert (keys.history_head_key(*one) == keys.history_head_key(*other)) == (one == other)
    assert (keys.history_answers_key(*one) == keys.history_answers_key(*other)) == (one == other)
    assert keys.history_head_key(*one) != keys.history_answers_key(*other)
    prefix = keys.history_of(*one[:2], "head").removesuffix("*")
    assert keys.history_head_key(*other).startswith(prefix) == (one[:2] == other[:2])


@given(name, name)
def test_documents_of_two_users_with_one_name_differ(user: str, sourcefile: str) -> None:
    """A user's document never replaces another user's document, or a document without a user."""
    own = keys.document_id(sourcefile, user)
    assert (own == keys.document_id(sourcefile)) == (user == "")
    assert own != keys.document_id(sourcefile, user + "x")


@given(pair, pair, st.uuids(), st.uuids())
def test_two_jobs_never_share_an_original(
    one: tuple[str, str], other: tuple[str, str], first: uuid.UUID, second: uuid.UUID
) -> None:
    """Each job has an original of its own, whose name has the tenant and the index."""
    name = keys.original_object(*one, first.hex)
    assert (name == keys.original_object(*other, second.hex)) == ((one, first) == (other, second))
    assert keys.is_original_in(*one, name)
    assert keys.is_original_in(*other, name) == (one == other)


@given(pair, pair, st.integers(0, keys.INGEST_LANES - 1))
def test_a_subject_names_the_lane_and_the_owner(one: tuple[str, str], other: tuple[str, str], lane: int) -> None:
    """A subject has the lane and the owner. The patterns of a tenant and an index match only their own subjects."""
    subject = keys.ingest_subject(lane, *one)
    assert keys.ingest_lane_of(subject) == lane
    matching = [number for number in range(keys.INGEST_LANES) if _matches(keys.ingest_lane(number), subject)]
    assert matching == [lane]
    without = f"causeway.ingest.job.{subject.partition(f'.job.{lane}.')[2]}"
    assert _matches(keys.INGEST_WITHOUT_LANE, without)
    assert not _matches(keys.INGEST_WITHOUT_LANE, subject)
    assert keys.ingest_dead_subject_of(without) == keys.ingest_dead_subject(*one)
    assert _matches(keys.ingest_jobs_of(other[0]), subject) == (one[0] == other[0])
    assert _matches(keys.ingest_jobs_of(*other), subject) == (one == other) or not other[1]
    dead = keys.ingest_dead_subject_of(subject)
    assert dead == keys.ingest_dead_subject(*one)
    assert _matches(keys.ingest_dead_subjects_of(other[0]), dead) == (one[0] == other[0])
    assert keys.job_key(*one).startswith(keys.job_keys(other[0]).removesuffix("*")) == (one[0] == other[0])


def _matches(pattern: str, subject: str) -> bool:
    wanted, found = pattern.split("."), subject.split(".")
    return len(wanted) == len(found) and all(
        part in ("*", token) for part, token in zip(wanted, found, strict=True)
    )


@given(name)
def test_each_collection_has_a_separate_directory(text: str) -> None:
    """A collection's name is a valid file name and never leads out of its directory."""
    collection = keys.collection(text, text)
    assert len(collection.encode()) <= 255
    assert Path(collection).name == collection
    assert not collection.startswith(".")


chunk = st.tuples(name, name, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", "a", "b"]))


@given(chunk, chunk)
@example(("c", "d\0001", 2, 3, "a"), ("c", "d", 1, 2, "a"))
def test_two_chunks_never_share_an_id(
    one: tuple[str, str, int, int, str], other: tuple[str, str, int, int, str]
) -> None:
    """A point's id depends only on collection, document, generation, number and text."""

    def point(tenant: str, document: str, generation: int, number: int, text: str) -> uuid.UUID:
        return keys.point_id(keys.collection(tenant, "i"), document, generation, number, text)

    try:
        first, second = point(*one), point(*other)
    except UnicodeEncodeError:
        return  # half a surrogate pair cannot be in a document's id: it came in a protobuf message
    assert (first == second) == (one == other)


@given(name, name, st.integers(0, 9), st.text(max_size=5))
def test_no_chunk_has_the_id_of_a_document(document: str, other: str, number: int, text: str) -> None:
    """No document's id makes its record replace another document's chunk."""
    try:
        point = keys.point_id("c", document, 1, number, text)
        crafted = "\0".join((document, "1", str(number), hashlib.sha256(text.encode()).hexdigest()))
        records = [keys.document_point_id("c", name) for name in (document, other, crafted)]
    except UnicodeEncodeError:
        return
    assert point not in records


def test_names_do_not_change() -> None:
    """These names never change, so that the next version finds the stored data."""
    assert keys.collection("local", "docs") == "bG9jYWw.ZG9jcw"
    assert keys.job_key("local", "1") == "bG9jYWw.MQ"
    assert keys.ingest_subject(3, "a", "b") == "causeway.ingest.job.3.YQ.Yg"
    assert keys.token("x" * 65) == "=" + base64.urlsafe_b64encode(
        bytes.fromhex("9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9")
    ).decode().rstrip("=")
    assert str(keys.point_id("c", "d", 1, 0, "text")) == "17eeb072-ff66-514b-a3ff-b6282d98798c"
    assert str(keys.document_point_id("c", "d")) == "35290440-f897-5217-ae47-c2b3abd0d72b"
    assert keys.own_oid("ann") == "own:ann"
    assert keys.document_id("a.pdf") == "a7949e623819aa32baf4c32d0457e275b4eff130ec61f43cf284ffdef26efcf4"


@pytest.mark.parametrize("good", ["a", "A1", "docs-2024_v1.2", "x" * 128])
def test_valid_index_names_are_accepted(good: str) -> None:
    """An index's name has up to 128 letters, digits, ``_``, ``.`` and ``-``."""
    assert keys.index_name(good) == good


@pytest.mark.parametrize("bad", ["", "-a", ".a", "_a", "a b", "ä", "a/b", "../a", "a\n", "x" * 129])
def test_bad_index_names_are_refused(bad: str) -> None:
    """An invalid name of an index is refused with its field."""
    with pytest.raises(InvalidRequest, match="Invalid index name") as caught:
        keys.index_name(bad)
    assert caught.value.field == "index"
    assert len(caught.value.message) < 500


async def test_a_real_server_accepts_every_name(nats_url: str) -> None:
    """NATS stores and delivers under the names of unusual tenants and files, and keeps them apart."""
    client = await nats.connect(nats_url, "test")
    transport = await nats.ingest_transport(client)
    jetstream = transport.jetstream
    for at, odd in enumerate(ODD):
        mark = str(at).encode()
        await transport.jobs.put(keys.job_key(odd, odd), mark)
        await transport.originals.put(keys.original_object(odd, odd, "0" * 32), mark)
        await jetstream.publish(keys.ingest_subject(1, odd, odd), mark)
        await jetstream.publish(keys.ingest_dead_subject(odd, odd), mark)
    for at, odd in enumerate(ODD):
        mark = str(at).encode()
        assert (await transport.jobs.get(keys.job_key(odd, odd))).value == mark
        assert (await transport.originals.get(keys.original_object(odd, odd, "0" * 32))).data == mark
        for stream, subject in [
            (keys.INGEST_STREAM, keys.ingest_subject(1, odd, odd)),
            (keys.INGEST_DEAD_STREAM, keys.ingest_dead_subject(odd, odd)),
        ]:
            assert (await jetstream.get_last_msg(stream, subject)).data == mark
    await client.close()


@given(name, name)
def test_marker_and_record_have_different_ids(collection: str, document: str) -> None:
    """The marker and the record of a document have different ids in a collection."""
    try:
        mark = keys.mark_point_id(collection, document)
    except UnicodeEncodeError:
        return  # no text that a document could have
    assert mark != keys.document_point_id(collection, document)


@given(name, name)
def test_two_tenants_never_share_snapshots(one: str, other: str) -> None:
    """Each tenant's snapshots have their own directory directly below the root."""
    assert (keys.snapshots(one) == keys.snapshots(other)) == (one == other)
    assert "/" not in keys.snapshots(one)
    assert keys.snapshots(one) not in (".", "..", "")


@given(pair, pair, name, name)
def test_patterns_of_pictures_match_only_their_own_keys(
    one: tuple[str, str], other: tuple[str, str], first: str, second: str
) -> None:
    """A document's pattern matches only its own keys, and an index's pattern those of its documents. All are valid
    keys.
    """
    key = keys.picture_key(*one, first, "ab" * 32, 12)
    assert re.fullmatch(r"[-/_=.a-zA-Z0-9]+", key)
    of_document = keys.document_pictures(*other, second).removesuffix(">")
    assert key.startswith(of_document) == ((one, first) == (other, second))
    assert key.startswith(keys.index_pictures(*other).removesuffix(">")) == (one == other)
    assert key.startswith(keys.document_pictures(*one, first, "ab" * 32).removesuffix(">"))
    assert not key.startswith(keys.document_pictures(*one, first, "cd" * 32).removesuffix(">"))
