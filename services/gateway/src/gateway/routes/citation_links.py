"""Turns citations into Markdown links, for clients that show only text: ``[name]`` becomes ``[name](signed URL)``.

This is the last step of an answer, so detectors see no links, and sessions and records store none. The links in a
later request become citation marks again before the gateway parses the request.
"""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from gateway.answering.citation_marks import MarkScanner, names_of
from gateway.domain import Batch, Completion, Context, Delta, Done, Event, Finish, Passage
from gateway.domain.deltas import members_of
from gateway.identity.link_signing import PARAMETER, PREFIX, LinkedDocument, LinkKeys
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import RequestState, state_of

_UNLINKABLE = frozenset("[]\\\n")
"""Characters that Markdown does not allow in the text of a link."""

# JSON encoders may escape characters such as "=" and "/". Proxies may percent-encode the "=".
_SIGNED = rb"[?&]%b(?:=|%%3[dD]|\\u003[dD])%b[A-Za-z0-9_.-]*" % (PARAMETER.encode(), re.escape(PREFIX.encode()))
_IN_BODY = re.compile(rb"\]\((?:[^()\s\"<>\\]|\\/|\\u[0-9a-fA-F]{4})*?" + _SIGNED + rb"[^()\s\"<>]*\)")
_BARE = re.compile(_SIGNED)
_MARKER = PREFIX.encode()


def without_links(body: bytes) -> bytes:
    """Return the body of a request with citation marks in place of signed links.

    Signatures in URLs that are not Markdown links are removed, too.

    >>> without_links(b'{"content": "See [a.pdf#page=2](https://x.org/content/a.pdf?link=cwl1.7.ab.cd#page=2)."}')
    b'{"content": "See [a.pdf#page=2]."}'
    """
    if _MARKER not in body:
        return body
    return _BARE.sub(b"", _IN_BODY.sub(b"]", body))


class CitationLinks:
    """Turns the citations of answers into links.

    Args:
        keys: The keys that sign the links.
        address: The public address for the links.
    """

    def __init__(self, keys: LinkKeys, address: PublicAddress) -> None:
        self._keys = keys
        self._address = address

    def through(self, answer: AsyncGenerator[Batch, None], scope: Scope) -> AsyncGenerator[Batch, None]:
        """Yield the batches of an answer with links. ``scope`` is the scope of the request."""
        return _Linking(self._keys, state_of(scope), self._address.root(scope)).through(answer)


class _Linking:
    """Turns the citations of one answer into links."""

    def __init__(self, keys: LinkKeys, state: RequestState, base: str) -> None:
        self._keys = keys
        self._state = state
        self._base = base
        self._cited: dict[str, Passage] = {}
        self._links: dict[str, str] = {}
        self._scanners: dict[int, MarkScanner] = {}

    async def through(self, answer: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
        async with aclosing(answer) as batches:
            async for batch in batches:
                if linked := [linked_event for event in batch for linked_event in self._linked_events(event)]:
                    yield linked

    def _linked_events(self, event: Event) -> Iterator[Event]:
        """Yield the events that replace an event. Their texts contain links instead of citation marks."""
        if type(event) is Delta:
            if not event.text or not self._cited:
                yield event
                return
            text = self._text(self._scanner(event.choice).feed(event.text))
            if text == event.text:
                yield event
            elif text or event.delta_json or event.choice_json:
                yield msgspec.structs.replace(event, text=text)
            return
        if type(event) is Context:
            self._collect_names(event.passages)
        elif type(event) is Finish:
            yield from self._flush(event.choice)
        elif type(event) is Done:
            for choice in self._scanners:
                yield from self._flush(choice)
        elif type(event) is Completion and self._cited:
            event = Completion(self._whole(event.raw_json))
        yield event

    def _collect_names(self, passages: tuple[Passage, ...]) -> None:
        for passage in passages:
            if passage.has_original:
                for name in names_of([passage]):
                    if _UNLINKABLE.isdisjoint(name):
                        self._cited.setdefault(name, passage)

    def _scanner(self, choice: int) -> MarkScanner:
        scanner = self._scanners.get(choice)
        if scanner is None:
            scanner = self._scanners[choice] = MarkScanner(self._cited)
        return scanner

    def _flush(self, choice: int) -> Iterator[Event]:
        if choice in self._scanners and (text := self._text(self._scanners[choice].end())):
            yield Delta(choice, text)

    def _text(self, pieces: Any) -> str:
        return "".join(self._link(text) if is_mark else text for text, is_mark in pieces)

    def _link(self, mark: str) -> str:
        link = self._links.get(mark)
        if link is None:
            link = self._links[mark] = mark + self._target(mark[1:-1])
        return link

    def _target(self, name: str) -> str:
        passage, caller = self._cited[name], self._state.caller
        principal = caller.principal
        expires_at = self._keys.expiry()
        signature = self._keys.sign(
            LinkedDocument(
                profile=self._state.frontend.name,
                tenant=principal.tenant,
                index=passage.index,
                document_id=passage.document_id,
                generation=passage.generation,
                user=principal.user,
                issuer=principal.issuer,
                oids=tuple(oid for oid in principal.oids if oid in passage.oids),
                groups=tuple(group for group in principal.groups if group in passage.groups),
                is_admin=principal.sees_everything,
                api_key=caller.key_id,
                expires_at=expires_at if caller.expires_at is None else min(expires_at, int(caller.expires_at)),
            )
        )
        if signature is None:
            return ""  # no key is available yet: show the citation without a link
        page = f"#page={passage.page}" if passage.page and name == passage.sourcepage else ""
        return f"({self._base}/content/{quote(passage.sourcefile)}?{PARAMETER}={signature}{page})"

    def _whole(self, raw_json: bytes) -> bytes:
        """Return the JSON of a model server's complete answer, with links."""
        body = members_of(raw_json)
        changed = False
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            message = choice.get("message", choice) if isinstance(choice, dict) else None
            if not isinstance(message, dict):
                continue
            content = message.get("content")
            parts = content if isinstance(content, list) else ()
            for target, name in ((message, "content"), (message, "text"), *((part, "text") for part in parts)):
                text = target.get(name) if isinstance(target, dict) else None
                if isinstance(text, str):
                    target[name] = self._linked(text)
                    changed |= target[name] != text
        return msgspec.json.encode(body) if changed else raw_json

    def _linked(self, text: str) -> str:
        scanner = MarkScanner(self._cited)
        return self._text((*scanner.feed(text), *scanner.end()))
