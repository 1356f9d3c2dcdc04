"""Adds the options of a profile and the question of a conversation to an OpenAI turn."""

from dataclasses import replace
from typing import Any

import msgspec

from gateway.dialects import turn_settings
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai import conversation
from gateway.domain import PART_BREAK, Message, PromptOptions, Turn
from gateway.frontends.profiles import Frontend

TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names for the maximum number of tokens of an answer."""
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def prompting(frontend: Frontend, defaults: Fields) -> PromptOptions:
    """Return the prompt options of a profile that always searches, or the default options for other profiles.

    Args:
        frontend: The profile.
        defaults: The profile's overrides.
    """
    if not frontend.always_searches:
        return PromptOptions()
    return PromptOptions(
        system_prompt=frontend.system_prompt,
        rewrite=defaults.flag("query_rewriting"),
        language=turn_settings.language(defaults),
    )


def with_question(turn: Turn, messages: list[Message], *, requires_question: bool) -> Turn:
    """Return the turn with one question that joins all user messages after the last answer, as RAGEngine does.

    A conversation with tools or pictures remains unchanged, so that the model can match tool results to tool calls.

    Args:
        turn: The turn with the original messages.
        messages: All messages.
        requires_question: Whether to refuse a conversation without a question. Otherwise the model answers it
            without a search.

    Raises:
        InvalidRequest: No user message with text follows the last answer.
    """
    is_plain = all(map(conversation.searchable, messages))
    if not is_plain or not (requires_question or turn.query):
        return turn
    question_positions, other_positions = conversation.split(messages)
    question = [messages[at] for at in question_positions]
    return replace(
        turn,
        question=PART_BREAK.join(message.text for message in question),
        history=tuple(messages[at] for at in other_positions),
        original=replace(
            turn.original,
            question_extra_json=conversation.common_extra(question),
            question_gaps=conversation.gaps(question),
            messages=tuple(messages) if len(question_positions) > 1 else (),
            places=(*other_positions, *question_positions),
        ),
    )


def with_profile(turn: Turn, options: PromptOptions, parameters: dict[str, Any], *, composes_request: bool) -> Turn:
    """Return the turn with the prompt options and the parameters of its profile, if the profile has any.

    Args:
        turn: The turn of the request.
        options: The prompt options of the profile.
        parameters: The profile's default parameters for the model.
        composes_request: Whether the gateway always composes the request for the model server.
    """
    if not (
        composes_request or parameters or turn.model_alias or replace(options, rewrite=False) != PromptOptions()
    ):
        return turn if options == turn.prompting else replace(turn, prompting=options)
    is_plain = (
        composes_request and not parameters and not turn.original.messages and b"null" not in turn.parameters_json
    )
    if is_plain and options == turn.prompting:
        return turn
    requested = {name: raw for name, raw in _object.decode(turn.parameters_json).items() if bytes(raw) != b"null"}
    if any(name in requested for name in TOKEN_LIMITS):
        parameters = {name: value for name, value in parameters.items() if name not in TOKEN_LIMITS}
    return replace(
        turn,
        prompting=options,
        parameters_json=msgspec.json.encode(parameters | requested),
        max_tokens=turn.max_tokens or parameters.get("max_tokens"),
        # If a search finds nothing, the gateway sends the original request, which lacks these instructions. Without
        # the original, the gateway always composes the request.
        original=replace(turn.original, json=b"", messages=()),
    )
