"""Adds the options of a front end's profile, and the question of a conversation, to an OpenAI turn."""

from dataclasses import replace
from typing import Any

import msgspec

from gateway.dialects import turn_settings
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai import conversation
from gateway.domain import PART_BREAK, Message, PromptOptions, Turn
from gateway.frontends.profiles import Frontend

_LIMITS = ("max_tokens", "max_completion_tokens")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def prompting(frontend: Frontend, usual: Fields) -> PromptOptions:
    """Return the prompt options of a profile with its own index; none for other profiles.

    Args:
        frontend: The profile.
        usual: Its overrides.
    """
    if not frontend.always_searches:
        return PromptOptions()
    return PromptOptions(
        system_prompt=frontend.system_prompt,
        rewrite=usual.flag("query_rewriting"),
        language=turn_settings.language(usual),
    )


def with_question(turn: Turn, messages: list[Message], *, must_ask: bool) -> Turn:
    """Return the turn with its question made from several messages, by RAGEngine's algorithm.

    A conversation with tools or pictures keeps its order, because the model must match the answers to the calls.

    Args:
        turn: The turn with the original messages.
        messages: All messages.
        must_ask: Refuse a conversation without a question; else the model alone answers it.

    Raises:
        InvalidRequest: There is no user message since the latest answer.
    """
    plain = all(map(conversation.searchable, messages))
    if not plain or not (must_ask or turn.query):
        return turn
    asking, others = conversation.split(messages)
    question = [messages[at] for at in asking]
    return replace(
        turn,
        question=PART_BREAK.join(message.text for message in question),
        history=tuple(messages[at] for at in others),
        original=replace(
            turn.original,
            question_extra_json=conversation.common_extra(question),
            question_gaps=conversation.gaps(question),
            messages=tuple(messages) if len(asking) > 1 else (),
            places=(*others, *asking),
        ),
    )


def with_profile(turn: Turn, options: PromptOptions, parameters: dict[str, Any], *, composed: bool) -> Turn:
    """Return the turn with the prompt and the parameters of its profile, if it has some.

    Args:
        turn: The turn of the request.
        asking: The prompt options of the profile.
        parameters: The profile's default parameters for the model.
        composed: The model never gets the request unchanged.
    """
    if not (composed or parameters or turn.answers_as or replace(options, rewrite=False) != PromptOptions()):
        return turn if options == turn.prompting else replace(turn, prompting=options)
    plain = composed and not parameters and not turn.original.messages and b"null" not in turn.parameters_json
    if plain and options == turn.prompting:
        return turn
    given = {name: raw for name, raw in _object.decode(turn.parameters_json).items() if bytes(raw) != b"null"}
    if any(name in given for name in _LIMITS):
        parameters = {name: value for name, value in parameters.items() if name not in _LIMITS}
    return replace(
        turn,
        prompting=options,
        parameters_json=msgspec.json.encode(parameters | given),
        max_tokens=turn.max_tokens or parameters.get("max_tokens"),
        # The model gets these instructions, with or without search results.
        original=replace(turn.original, json=b"", messages=()),
    )
