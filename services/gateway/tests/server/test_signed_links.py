"""Signed links of citations: answers contain them, and browsers open them without a credential."""

import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from causeway_testing.clock import ManualClock
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain import Completion, Delta
from gateway.domain.documents import StoredDocument
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.caller import Caller
from gateway.identity.link_signing import LIFETIME_SECONDS, LinkKeys
from gateway.main import build_app
from gateway.settings import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servicekit import api_keys
from servicekit.errors import Unauthenticated
from servicekit.principal import Principal

BYTES, DIGEST = b"%PDF-1.7 ferry", "a" * 64
MARK = "[guide-1.pdf#page=1]"
ANSWER = f"At nine {MARK}."
LINK = re.compile(r"\]\(http://gateway(/content/[^)#]+)(#page=1)?\)")
FRONTENDS = """
frontends:
  - {name: help, mount: help, index: docs, citations: links, allow: {models: any}}
  - name: desk
    mount: desk
    index: empty
    citations: links
    assistants: [{name: harbour, indexes: [docs], allow: {groups: [staff]}}]
  - {name: plain, mount: plain, index: docs}
  - {name: strict, mount: strict, index: docs, citations: links, enforce_access: true}
"""
CHATS = [
    (path, stream)
    for path in ("/v1/chat/completions", "/v1/completions", "/openai/deployments/m/chat/completions")
    for stream in (False, True)
]


class OneToken:
    """The tokens of one user, which expire after ten minutes."""

    def __init__(self) -> None:
        ann = Principal("north", "ann", ("ann",), ("crew", "staff"), ("ask",), "https://id.example.com")
        self._caller = Caller(ann, expires_at=time.time() + 600)

    def cached(self, token: str) -> Caller | None:
        return self._caller if token == "ann" else None

    async def caller(self, token: str) -> Caller:
        raise Unauthenticated("No such token.")


class Gateway:
    """A gateway with a caller and a generator."""

    def __init__(self, fakes: Any, tmp_path: Path, **more: Any) -> None:
        (tmp_path / "frontends.yaml").write_text(FRONTENDS)
        fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
        self.clock = ManualClock(time.time())
        fakes.link_keys = LinkKeys.of(b"k" * 32, now=self.clock)
        fakes.keys.replace([])
        self.fakes = fakes
        self.headers = self.key("north")
        fakes.retriever.indexes["docs"] = [
            replace(passage, has_original=True, generation=7, oids=("ann",))
            for passage in fakes.retriever.indexes["docs"]
        ]
        self.store()
        fakes.originals.contents["north", DIGEST] = BYTES
        self.app = build_app(Settings(**{"default_index": "docs", "auth": "keys", **more}), fakes.services())
        self.set_answer(ANSWER)

    def store(self, generation: int = 7, oids: tuple[str, ...] = ("ann",)) -> None:
        """Store the cited document in the catalogue."""
        stored = StoredDocument("d1", "guide-1.pdf", "application/pdf", DIGEST, len(BYTES), 1.0, DIGEST, generation)
        self.fakes.retriever.documents = {"docs": [FakeDocument(stored, oids)]}

    def key(self, tenant: str, user: str = "ann", *roles: str) -> dict[str, str]:
        """Create a key. Return the headers with it."""
        key, record = api_keys.create(user, tenant, roles=roles or ("ask",), oids=(user,))
        self.fakes.keys.put(record)
        return {"authorization": f"Bearer {key}"}

    def set_answer(self, *pieces: str) -> None:
        """Set the model's answer."""
        self.fakes.generator.script = FakeGenerator.saying(*pieces).script

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        """Return a client."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield http

    async def ask(
        self, path: str = "/v1/chat/completions", *, stream: bool = False, mount: str = "help", **more: Any
    ) -> str:
        """Ask a question. Return the text of the answer."""
        body: dict[str, Any] = {"stream": stream, "messages": [{"role": "user", "content": "When does it leave?"}]}
        if path == "/v1/completions":
            body = {"stream": stream, "prompt": "When does the ferry leave?"}
        async with self.http() as http:
            answer = await http.post(f"/{mount}{path}", json=body | more, headers=self.headers)
        assert answer.status_code == 200, answer.text
        if not stream:
            return text_of(answer.json())
        events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: {")]
        return "".join(text_of(json.loads(event)) for event in events)

    async def open_link(self, path: str, **more: Any) -> httpx.Response:
        """Open a link without a credential. Return the response."""
        async with self.http() as http:
            return await http.request(more.pop("method", "GET"), path, **more)


def text_of(answer: Any) -> str:
    return "".join(
        choice.get("text") or (choice.get("message") or choice.get("delta") or {}).get("content") or ""
        for choice in answer["choices"]
    )


def link_of(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[1]


@pytest.fixture
def gateway(fakes: Any, tmp_path: Path) -> Gateway:
    return Gateway(fakes, tmp_path)


@pytest.mark.parametrize(("path", "stream"), CHATS, ids=[f"{path} {stream}" for path, stream in CHATS])
async def test_a_citation_opens_its_document(gateway: Gateway, path: str, stream: bool) -> None:
    """A citation of each chat is a link to its page, and the link opens the document without a credential."""
    text = await gateway.ask(path, stream=stream)
    assert LINK.sub("]", text) == ANSWER
    assert "#page=1)" in text
    opened = await gateway.open_link(link_of(text))
    assert (opened.status_code, opened.content) == (200, BYTES)
    assert opened.headers["referrer-policy"] == "no-referrer"
    head = await gateway.open_link(link_of(text), method="HEAD")
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(BYTES)))
    part = await gateway.open_link(link_of(text), headers={"range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"%PDF")


async def test_other_front_ends_have_plain_citations(gateway: Gateway) -> None:
    """Profiles without links and protocols with their own sources have plain citations."""
    assert await gateway.ask(mount="plain") == ANSWER
    async with gateway.http() as http:
        body = {"messages": [{"role": "user", "content": "When does it leave?"}]}
        answer = await http.post("/help/2024-04/chat", json=body, headers=gateway.headers)
    assert answer.json()["message"]["content"] == ANSWER


async def test_a_complete_answer_of_the_model_server_gets_links(gateway: Gateway) -> None:
    """A complete answer of the model server keeps its fields, and its text gets links."""
    for content in (ANSWER, [{"type": "text", "text": ANSWER}]):
        completion = {
            "id": "x",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
            "z": 1,
        }
        gateway.fakes.generator.script = [[Completion(json.dumps(completion).encode())]]
        async with gateway.http() as http:
            body = {"messages": [{"role": "user", "content": "When does it leave?"}]}
            answer = await http.post("/help/v1/chat/completions", json=body, headers=gateway.headers)
        assert answer.json()["z"] == 1
        content = answer.json()["choices"][0]["message"]["content"]
        assert LINK.sub("]", content if isinstance(content, str) else content[0]["text"]) == ANSWER


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=8))
async def test_links_do_not_depend_on_the_split(gateway: Gateway, cuts: list[int]) -> None:
    """The text with links does not depend on the split of the answer."""
    edges = [0, *sorted(cuts), len(ANSWER)]
    gateway.set_answer(*(ANSWER[a:b] for a, b in itertools.pairwise(edges)))
    text = await gateway.ask(stream=True)
    assert LINK.sub("]", text) == ANSWER
    assert len(LINK.findall(text)) == 1


async def test_only_citations_become_links(gateway: Gateway) -> None:
    """Only complete names of passages with an original become links."""
    for text in ("[guide-9.pdf#page=1]", "[guide-1.pdf#page=1", "[x](http://y/)", "[[guide-1.pdf#page=1"):
        gateway.set_answer(*text)
        assert await gateway.ask(stream=True) == text
    gateway.fakes.retriever.indexes["docs"] = [
        replace(passage, has_original=False) for passage in gateway.fakes.retriever.indexes["docs"]
    ]
    gateway.set_answer(ANSWER)
    assert await gateway.ask() == ANSWER


async def test_without_a_signing_key_citations_are_plain(fakes: Any, tmp_path: Path) -> None:
    """Citations stay plain while no signing key is known."""
    gateway = Gateway(fakes, tmp_path)
    fakes.link_keys.replace({})
    assert await gateway.ask() == ANSWER


async def test_invalid_links_get_the_same_refusal(gateway: Gateway) -> None:
    """Every invalid, foreign or expired link is refused with the same 403."""
    gateway.clock.now -= 60
    link = link_of(await gateway.ask())
    head, _, signature = link.partition("?link=")
    other = LinkKeys.of(b"o" * 32, now=gateway.clock)
    foreign = other.sign(gateway.fakes.link_keys.verify(signature))
    wrong = [f"{head}?link={invalid}" for invalid in ("", "x", signature[:-1], f"{signature}a", foreign)]
    answers = [await gateway.open_link(path) for path in wrong]
    with_key = await gateway.open_link(wrong[1], headers=gateway.headers)
    gateway.clock.now += LIFETIME_SECONDS + 1
    answers += [await gateway.open_link(link), with_key]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (403, '{"error":"The link is invalid or has expired. Ask again to get a new one."}')
    }
    assert all("etag" not in answer.headers for answer in answers)


async def test_a_link_is_for_one_version_of_one_document(gateway: Gateway) -> None:
    """A link opens one version of one document by GET. A newer version and a missing document get 403."""
    link = link_of(await gateway.ask())
    assert (await gateway.open_link(link.replace("guide-1.pdf", "other.pdf"))).content == BYTES
    assert (await gateway.open_link(f"{link}&index=secret")).content == BYTES
    assert (await gateway.open_link(link, method="POST")).status_code == 401
    assert (await gateway.open_link(link.replace("/content/", "/list_uploaded/"))).status_code == 401
    gateway.store(generation=8)
    assert (await gateway.open_link(link)).status_code == 403
    gateway.fakes.retriever.documents = {}
    assert (await gateway.open_link(link)).status_code == 403
    gateway.fakes.retriever.indexes.clear()
    assert (await gateway.open_link(link)).status_code == 403


async def test_access_is_checked_when_a_link_is_opened(gateway: Gateway) -> None:
    """A link gets the status 403 after the caller has lost access or the caller's key was revoked."""
    link = link_of(await gateway.ask())
    gateway.store(oids=("bob",))
    assert (await gateway.open_link(link)).status_code == 403
    gateway.store(oids=("bob", "ann"))
    assert (await gateway.open_link(link)).status_code == 200
    gateway.fakes.keys.remove(api_keys.id_of(gateway.headers["authorization"].split()[1]))
    assert (await gateway.open_link(link)).status_code == 403


async def test_the_rules_of_the_front_end_apply_to_its_links(gateway: Gateway) -> None:
    """A link of a front end that enforces access lists opens no hidden document, even for an administrator."""
    gateway.headers = gateway.key("north", "chief", "admin")
    free, bound = link_of(await gateway.ask()), link_of(await gateway.ask(mount="strict"))
    assert (await gateway.open_link(free)).status_code == 200
    assert (await gateway.open_link(f"/strict{free}")).status_code == 200
    for mount in ("", "/help", "/plain"):
        assert (await gateway.open_link(mount + bound)).status_code == 403


async def test_a_link_of_an_assistant_and_a_token(fakes: Any, tmp_path: Path) -> None:
    """A link of an assistant opens its document until the caller's token expires."""
    fakes.tokens = OneToken()
    oidc = {"auth": "oidc", "oidc_issuer": "https://id.example.com", "oidc_audience": ["causeway"]}
    gateway = Gateway(fakes, tmp_path, **oidc)
    gateway.headers = {"authorization": "Bearer ann"}
    link = link_of(await gateway.ask(mount="desk", model="harbour"))
    assert (await gateway.open_link(link)).content == BYTES
    assert (await gateway.open_link(link.partition("?")[0])).status_code == 401
    gateway.clock.now += 601
    assert (await gateway.open_link(link)).status_code == 403


async def test_a_link_opens_only_documents_of_its_tenant(gateway: Gateway) -> None:
    """A link opens only documents of its own tenant. A credential in the same request is ignored."""
    link = link_of(await gateway.ask())
    gateway.headers = gateway.key("south")
    opened = await gateway.open_link(link, headers=gateway.headers)
    assert opened.content == BYTES, "the credential must be ignored"
    others = link_of(await gateway.ask())
    assert (await gateway.open_link(others)).status_code == 404, "the original belongs to the other tenant"


async def test_links_in_a_request_become_plain_citations(gateway: Gateway) -> None:
    """Links in a request become plain citations, in every protocol and with every JSON escape."""
    text = await gateway.ask()
    link = text[text.index("](") + 1 : text.index(")") + 1]
    messages = [
        {"role": "user", "content": "When does it leave?"},
        {"role": "assistant", "content": text},
        {"role": "user", "content": f"And what is {link[1:-1]} about?"},
    ]
    for path in ("/help/v1/chat/completions", "/plain/2024-04/chat", "/v1/chat/completions"):
        for escaped in ({}, {"/": "\\/"}, {"=": "\\u003d"}):
            raw = json.dumps({"messages": messages})
            for character, other in escaped.items():
                raw = raw.replace(character, other)
            gateway.fakes.generator.prompts.clear()
            async with gateway.http() as http:
                headers = gateway.headers | {"content-type": "application/json"}
                answer = await http.post(path, content=raw, headers=headers)
            assert answer.status_code == 200, answer.text
            [prompt] = gateway.fakes.generator.prompts
            prompt_text = str(prompt)
            assert "cwl1." not in prompt_text
            assert MARK in re.sub(r"\\+u003d", "=", prompt_text)
            assert "[guide-1.pdf#page=1](" not in prompt_text


async def test_logs_and_traces_have_no_signature(gateway: Gateway, spans: InMemorySpanExporter) -> None:
    """Logs, traces and records have no signature of a link."""
    with structlog.testing.capture_logs() as logs:
        text = await gateway.ask(stream=True)
        link = link_of(text)
        assert (await gateway.open_link(link)).status_code == 200
        assert (await gateway.open_link(link + "x")).status_code == 403
        gateway.store(generation=8)
        assert (await gateway.open_link(link)).status_code == 403
        await gateway.ask(messages=[{"role": "user", "content": f"What is {text}?"}])
    assert len([entry for entry in logs if entry["event"] == "request"]) == 5
    output = str(logs) + str([(span.name, span.attributes, span.events) for span in spans.get_finished_spans()])
    output += str(
        gateway.fakes.records.__dict__ if hasattr(gateway.fakes.records, "__dict__") else gateway.fakes.records
    )
    assert "cwl1." not in output
    assert link.partition("?link=")[2] not in output


async def test_links_begin_with_the_public_address(fakes: Any, tmp_path: Path) -> None:
    """A link starts with the public URL, or without this setting with the request's host and the public path."""
    for more, begin in (
        (
            {"public_url": "https://rag.example.com/causeway"},
            "https://rag.example.com/causeway/content/guide-1.pdf?",
        ),
        ({"public_path": "/causeway"}, "http://gateway/causeway/content/guide-1.pdf?"),
    ):
        assert f"]({begin}link=cwl1." in await Gateway(fakes, tmp_path, **more).ask()


async def test_log_probabilities_are_kept(gateway: Gateway) -> None:
    """A delta that is held back keeps its log probabilities, and the link is complete."""
    gateway.fakes.generator.script = [
        [Delta(0, "[guide-1.p", b"", b'{"logprobs":{"content":[1]}}'), Delta(0, "df#page=1]")],
        *FakeGenerator.saying("").script[-1:],
    ]
    assert LINK.sub("]", await gateway.ask(stream=True)) == MARK
