import hashlib
import json
from typing import Any

import pytest
from gateway.dialects.ragengine import documents as ragengine
from gateway.domain.text_documents import Equals, ListedDocument
from servicekit.errors import InvalidRequest, PayloadTooLarge


def body(**members: Any) -> bytes:
    return json.dumps({"index_name": "notes"} | members).encode()


def single(**members: Any) -> bytes:
    return body(documents=[{"text": "A text."} | members])


def test_documents_are_parsed() -> None:
    """The id is the request's id or the text's digest. Metadata remain unchanged. Unknown members are ignored."""
    raw = (
        b'{"index_name":"notes","documents":[{"text":" \\u00e4 \\n","metadata":{"a" : 1.50},"hash_value":3},'
        b'{"text":"B","doc_id":"x/y","metadata":null}]}'
    )
    index, [first, second], _ = ragengine.index_request(raw)
    digest = hashlib.sha256(" ä \n".encode()).hexdigest()
    assert index == "notes"
    assert (first.document_id, first.text, first.metadata_json, first.sha256) == (
        digest,
        " ä \n",
        b'{"a" : 1.50}',
        digest,
    )
    assert (second.document_id, second.metadata_json) == ("x/y", b"{}")
    assert json.loads(ragengine.document_json(first)) == {
        "doc_id": digest,
        "text": " ä \n",
        "metadata": {"a": 1.5},
        "hash_value": digest,
        "is_truncated": False,
    }
    listed = ListedDocument("a", "b", b"{}", "c", is_truncated=True)
    assert json.loads(ragengine.document_json(listed))["is_truncated"]


def test_an_empty_id_is_replaced() -> None:
    """The text's digest replaces an empty id, which RAGEngine's own client sends."""
    _, documents, positions = ragengine.index_request(body(documents=[{"text": t, "doc_id": ""} for t in "ab"]))
    assert [document.document_id for document in documents] == [
        hashlib.sha256(t.encode()).hexdigest() for t in "ab"
    ]
    assert positions == [0, 1]


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", "JSON"),
    "no UTF-8": (b'{"index_name":"\xff"}', "index_name"),
    "no object": (b"[]", "object"),
    "deep": (b'{"index_name":' + b"[" * 5000, "JSON"),
    "no index": (b'{"documents":[{"text":"a"}]}', "index_name"),
    "index a number": (body(index_name=7), "index_name"),
    "index with a slash": (body(index_name="a/b"), "index_name"),
    "index with dots first": (body(index_name="../a"), "index_name"),
    "index with a line break": (body(index_name="a\n"), "index_name"),
    "index too long": (body(index_name="a" * 129), "index_name"),
    "no documents": (body(), "documents"),
    "documents null": (body(documents=None), "documents"),
    "documents an object": (body(documents={"text": "a"}), "documents"),
    "documents empty": (body(documents=[]), "documents"),
    "a document that is text": (body(documents=["a"]), "documents[0]"),
    "a document that is null": (body(documents=[{"text": "a"}, None]), "documents[1]"),
    "no text": (body(documents=[{"doc_id": "a"}]), "documents[0].text"),
    "text null": (single(text=None), "documents[0].text"),
    "text a number": (single(text=1), "documents[0].text"),
    "text empty": (single(text=""), "documents[0].text"),
    "text blank": (single(text=" \n\t\u3000"), "documents[0].text"),
    "text with NUL": (single(text="a\0b"), "documents[0].text"),
    "text with half a surrogate": (body(documents=[{"text": "\ud800 and more text"}]), "JSON"),
    "id a number": (single(doc_id=1), "documents[0].doc_id"),
    "id blank": (single(doc_id="  "), "documents[0].doc_id"),
    "id too long": (single(doc_id="x" * 513), "documents[0].doc_id"),
    "id with NUL": (single(doc_id="a\0"), "documents[0].doc_id"),
    "id with a line break": (single(doc_id="a\nb"), "documents[0].doc_id"),
    "metadata a list": (single(metadata=[1]), "documents[0].metadata"),
    "metadata text": (single(metadata="{}"), "documents[0].metadata"),
    "metadata with NaN": (single(metadata={"a": float("nan")}), "JSON"),
    "metadata with a huge number": (body(documents=[{"text": "a", "metadata": {"n": 10**30}}]), "metadata.n"),
    "metadata with a small number": (
        body(documents=[{"text": "a", "metadata": {"n": [-(2**64)]}}]),
        "metadata.n[0]",
    ),
    "metadata with NUL": (single(metadata={"a": {"b": "\0"}}), "metadata.a.b"),
    "metadata with a key of NUL": (single(metadata={"\0": 1}), "metadata"),
    "metadata too long": (single(metadata={"a": "x" * 70_000}), "metadata"),
    "the same id twice": (
        body(documents=[{"text": "a", "doc_id": "x"}, {"text": "b"}, {"text": "c", "doc_id": "x"}]),
        "documents[2].doc_id",
    ),
    "too many": (body(documents=[{"text": str(n)} for n in range(10_001)]), "10000"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_documents_are_refused(name: str) -> None:
    """The error names the field."""
    raw, expected = BAD[name]
    with pytest.raises(InvalidRequest) as caught:
        ragengine.index_request(raw)
    assert expected in f"{caught.value.message} {caught.value.field}"


def test_a_number_out_of_range_is_refused() -> None:
    """`1e999` in the metadata is refused."""
    with pytest.raises(InvalidRequest) as caught:
        ragengine.index_request(b'{"index_name":"n","documents":[{"text":"a","metadata":{"n":1e999}}]}')
    assert "metadata" in caught.value.message


def test_too_many_documents_or_too_long_metadata_are_a_413() -> None:
    """Too many documents or too long metadata cause a 413."""
    for name in ("too many", "metadata too long"):
        with pytest.raises(PayloadTooLarge):
            ragengine.index_request(BAD[name][0])


def test_an_update_requires_ids() -> None:
    """A document of an update without an id is refused."""
    [document] = ragengine.updates(b'{"documents":[{"doc_id":"a","text":"b"}]}')
    assert (document.document_id, document.metadata_json) == ("a", b"{}")
    for bad in (
        b'{"documents":[{"text":"b"}]}',
        b'{"documents":[{"doc_id":null,"text":"b"}]}',
        b'{"documents":[{"doc_id":"","text":"b"}]}',
        b"{}",
    ):
        with pytest.raises(InvalidRequest):
            ragengine.updates(bad)


@pytest.mark.parametrize("ids", [None, [], "a", [1], [""], [None], [str(n) for n in range(10_001)]])
def test_invalid_removals_are_refused(ids: Any) -> None:
    """The error names the field `doc_ids`."""
    with pytest.raises(InvalidRequest, match="doc_ids"):
        ragengine.removals(json.dumps({"doc_ids": ids}).encode())


def test_repeated_removals_are_merged() -> None:
    """Each id is listed once, in the order of the request."""
    assert ragengine.removals(b'{"doc_ids":["b","a","b"]}') == ["b", "a"]


def test_a_search_is_parsed() -> None:
    """A search returns five passages by default. A condition has the type of its value."""
    plain = ragengine.search(body(query="when?"))
    assert (plain.index, plain.query, plain.top, plain.conditions) == ("notes", "when?", 5, ())
    full = ragengine.search(body(query="q", max_node_count=300, metadata_filter={"a.b": "ü", "n": 1.5, "t": True}))
    assert full.top == 300
    assert full.conditions == (Equals("a.b", '"ü"'), Equals("n", "1.5"), Equals("t", "true"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "Query string cannot be empty."),
        ({"query": " \n"}, "Query string cannot be empty."),
        ({"query": 1}, "query"),
        ({"query": "q", "index_name": None}, "index_name"),
        ({"query": "q", "index_name": "a/b"}, "index name"),
        ({"query": "q", "max_node_count": 0}, "max_node_count"),
        ({"query": "q", "max_node_count": -1}, "max_node_count"),
        ({"query": "q", "max_node_count": 301}, "max_node_count"),
        ({"query": "q", "max_node_count": 10**40}, "max_node_count"),
        ({"query": "q", "max_node_count": "5"}, "max_node_count"),
        ({"query": "q", "max_node_count": 1.5}, "max_node_count"),
        ({"query": "q", "max_node_count": True}, "max_node_count"),
        ({"query": "q", "metadata_filter": []}, "metadata_filter"),
        ({"query": "q", "metadata_filter": "{}"}, "metadata_filter"),
        ({"query": "q", "metadata_filter": {"a": None}}, "metadata_filter.a"),
        ({"query": "q", "metadata_filter": {"a": [1]}}, "metadata_filter.a"),
        ({"query": "q", "metadata_filter": {"a": 10**30}}, "metadata_filter.a"),
        ({"query": "q", "metadata_filter": {" ": 1}}, "metadata_filter"),
        ({"query": "q", "metadata_filter": {"\0": 1}}, "metadata_filter"),
    ],
)
def test_invalid_searches_are_refused(members: dict[str, Any], message: str) -> None:
    """The error names the field, or has RAGEngine's wording."""
    with pytest.raises(InvalidRequest) as caught:
        ragengine.search(body(**members))
    assert message in caught.value.message


def test_conditions_are_read_from_a_query_string() -> None:
    """The conditions are a JSON object. An empty text or null means no condition."""
    assert ragengine.conditions_of_text('{"a":1}', "f") == (Equals("a", "1"),)
    assert ragengine.conditions_of_text(" ", "f") == ragengine.conditions_of_text("null", "f") == ()
    for bad in ("{", "[]", "1", '{"a":{}}', "[" * 5000, '{"a":NaN}'):
        with pytest.raises(InvalidRequest, match="f"):
            ragengine.conditions_of_text(bad, "f")


def test_the_same_text_twice_is_one_document() -> None:
    """The same text is one document with the latest metadata, and each text has the position of its document."""
    documents = [
        {"text": "a"},
        {"text": "b"},
        {"text": "a", "metadata": {"n": 1}},
        {"text": "c", "doc_id": "x"},
        {"text": "c", "doc_id": "x"},
    ]
    _, parsed, positions = ragengine.index_request(body(documents=documents))
    assert [(document.text, document.metadata_json) for document in parsed] == [
        ("a", b'{"n": 1}'),
        ("b", b"{}"),
        ("c", b"{}"),
    ]
    assert positions == [0, 1, 0, 2, 2]


@pytest.mark.parametrize(
    ("metadata", "suffix"),
    [
        ({"split_type": "code", "language": "python"}, ".py"),
        ({"split_type": "code", "language": "csharp"}, ".cs"),
        ({"split_type": "default", "language": "python"}, ""),
        ({"split_type": None}, ""),
        ({"language": "en"}, ""),
        (None, ""),
    ],
)
def test_metadata_identify_source_code(metadata: Any, suffix: str) -> None:
    """With the split type `code`, the language determines the suffix. The metadata remain unchanged."""
    _, [document], _ = ragengine.index_request(single(metadata=metadata))
    assert document.suffix == suffix
    assert json.loads(document.metadata_json) == (metadata or {})


@pytest.mark.parametrize(
    ("language", "message"),
    [
        (None, "documents[0].metadata: Language not specified in node metadata."),
        ("", "documents[0].metadata: Language not specified in node metadata."),
        ("klingon", "documents[0].metadata.language: Could not find language library for klingon."),
        (5, "documents[0].metadata.language: Could not find language library for 5."),
        (["python"], "documents[0].metadata.language: Could not find language library for ['python']."),
    ],
)
def test_source_code_without_a_known_language_is_refused(language: Any, message: str) -> None:
    """The error has RAGEngine's wording and names the field."""
    for read in (ragengine.index_request, ragengine.updates):
        with pytest.raises(InvalidRequest) as caught:
            read(single(doc_id="a", metadata={"split_type": "code", "language": language}))
        assert caught.value.message.startswith(message)
        assert caught.value.field == "documents[0].metadata.language"
