"""Documents as MCP resources: the URI template, the list of documents, and their texts."""

import base64
import binascii
from typing import Any

import mcp_types as types
import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.mcp import links
from gateway.dialects.mcp.agent_request import AgentRequest
from gateway.dialects.mcp.calls import Calls
from gateway.ports.documents import Catalogue
from gateway.ports.index_management import Indexes

PAGE_SIZE = 100
"""The maximum number of documents in a page of the list."""
_TEXT = "text/plain"
_META_PREFIX = "causeway/"
_MAX_CURSOR_LENGTH = 4096

_cursor_decoder = msgspec.json.Decoder(tuple[str, str])


class Resources:
    """Lists documents and reads their texts.

    Args:
        calls: Reads documents, also for the tool ``fetch``.
        catalogue: Lists the documents of an index.
        indexes: Lists the indexes.
    """

    def __init__(self, calls: Calls, catalogue: Catalogue, indexes: Indexes) -> None:
        self._calls = calls
        self._catalogue = catalogue
        self._indexes = indexes

    def templates(self) -> list[types.ResourceTemplate]:
        """Return the only template: the URI of a document's text, or of a part of this text."""
        return [
            types.ResourceTemplate(
                name="document",
                title="A document's text",
                uri_template=links.TEMPLATE,
                description="The text of a document. The URI contains its index and its id. offset and length "
                "select a part of the text in characters; first_page and last_page select pages.",
                mime_type=_TEXT,
            )
        ]

    async def page(self, agent: AgentRequest, cursor: str) -> tuple[list[types.Resource], str]:
        """Return a page of the documents that the caller may see, and the next page's cursor (empty: no next page).

        Raises:
            InvalidRequest: The cursor is invalid.
        """
        index, token = _from_cursor(cursor) if cursor else ("", "")
        summaries = await self._indexes.summaries(agent.principal, agent.deadline)
        names = sorted(
            summary.name for summary in summaries if agent.offers(summary.name) and summary.name >= index
        )
        listed: list[types.Resource] = []
        for name in names:
            page_token = token if name == index else ""
            page = await self._catalogue.page(
                agent.principal, name, PAGE_SIZE - len(listed), page_token, agent.deadline
            )
            listed += [
                types.Resource(
                    name=links.document_name(name, document.document_id),
                    title=document.sourcefile,
                    uri=links.uri(name, document.document_id),
                    mime_type=_TEXT,
                )
                for document in page.documents
            ]
            if page.next_token:
                return listed, _to_cursor(name, page.next_token)
            if len(listed) == PAGE_SIZE and name != names[-1]:
                return listed, _to_cursor(names[names.index(name) + 1], "")
        return listed, ""

    async def read(self, agent: AgentRequest, uri: str) -> types.TextResourceContents:
        """Return a part of a document's text. Its ``_meta`` contains the offset of the next part.

        Raises:
            CausewayError: The document does not exist, the caller may not see it, or a detector blocks it.
        """
        name, numbers = links.parse_uri(uri)
        agent.log["tool"] = "resource"
        arguments: dict[str, Any] = dict(numbers)
        index, read, part = await self._calls.read(agent, name, Fields({"id": name, **arguments}))
        meta = {
            f"{_META_PREFIX}index": index,
            f"{_META_PREFIX}title": read.stored.sourcefile,
            f"{_META_PREFIX}pages": read.pages,
            f"{_META_PREFIX}next_offset": part.offset + part.length if read.is_truncated else None,
        }
        return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=read.text, _meta=meta)


def _to_cursor(index: str, token: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((index, token))).decode()


def _from_cursor(cursor: str) -> tuple[str, str]:
    try:
        if len(cursor) > _MAX_CURSOR_LENGTH:
            raise ValueError
        return _cursor_decoder.decode(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise InvalidRequest("cursor must be the nextCursor of an earlier page.", field="cursor") from None
