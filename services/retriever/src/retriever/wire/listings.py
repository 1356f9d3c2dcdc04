"""Conversion of listings and texts of documents."""

from collections.abc import Sequence

from causeway.retriever.v1 import document_pb2, retriever_pb2

from retriever.domain.document import Document
from retriever.domain.listing import DocumentPage, DocumentText, ListedChunk, PageRequest, TextRange
from retriever.wire import messages


def to_page_request(request: retriever_pb2.ListDocumentsRequest) -> PageRequest:
    """Return the requested page of a listing."""
    return PageRequest(
        request.page_size,
        request.page_token,
        request.offset if request.HasField("offset") else None,
        request.text_length if request.HasField("text_length") else None,
    )


def to_text_range(message: retriever_pb2.GetDocumentRequest) -> TextRange:
    """Return the requested part of a document's text."""
    return TextRange(message.text_length, message.text_offset, message.first_page, message.last_page)


def from_text(text: DocumentText) -> document_pb2.DocumentText:
    """Return the message of a document's text."""
    return document_pb2.DocumentText(text=text.text, is_truncated=text.is_truncated)


def from_page(page: DocumentPage) -> retriever_pb2.ListDocumentsResponse:
    """Return the message of a page of a listing."""
    return retriever_pb2.ListDocumentsResponse(
        documents=[messages.from_document(document) for document in page.documents],
        next_page_token=page.next_token,
        total=page.total,
        texts=[from_text(text) for text in page.texts],
    )


def from_chunks(document: Document, chunks: Sequence[ListedChunk]) -> retriever_pb2.ListChunksResponse:
    """Return the message of some chunks of a document."""
    return retriever_pb2.ListChunksResponse(
        document=messages.from_document(document),
        chunks=[
            retriever_pb2.ListedChunk(
                id=chunk.id,
                number=chunk.number,
                page=chunk.page,
                headings=chunk.headings,
                text=chunk.text,
                sourcepage=chunk.sourcepage,
            )
            for chunk in chunks
        ],
    )
