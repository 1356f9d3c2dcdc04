"""The list of all dialects. A new dialect needs a package with a registration, and a line in this module.

See docs/extending.md.
"""

from gateway.dialects.mcp import registration as mcp
from gateway.dialects.openai import registration as openai
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.openai.completions import OpenAiCompletions
from gateway.dialects.orchestrator import registration as orchestrator
from gateway.dialects.rag_chat import registration as rag_chat
from gateway.dialects.registration import Registration
from gateway.dialects.responses import registration as responses
from gateway.dialects.responses.compaction import Compactions
from gateway.dialects.responses.dialect import Responses


def registrations(
    similarity_threshold: float = 0.3, responses_dialect: Responses | None = None
) -> tuple[Registration, ...]:
    """Return the registrations of the dialects, in the order of the OpenAPI document.

    Args:
        similarity_threshold: The minimum cosine similarity of a passage to the question, for requests in OpenAI's
            formats.
        responses_dialect: The dialect of the Responses API. None creates one without keys for encrypted contents.
    """
    chat = OpenAiChat(similarity_threshold)
    dialect = responses_dialect or Responses(similarity_threshold)
    return (
        openai.registration(chat, OpenAiCompletions(similarity_threshold)),
        responses.registration(dialect, Compactions(dialect)),
        rag_chat.registration(),
        orchestrator.registration(chat),
        mcp.registration(),
    )
