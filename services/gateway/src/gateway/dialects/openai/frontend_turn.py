"""What the profile of a front end, and the question in a conversation, make of an OpenAI turn."""

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
    """Return what a profile with an index of its own adds to the prompt; nothing for other profiles.

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
    """Return the turn with its question put together from several messages, after RAGEngine's algorithm.

    A conversation with tools or pictures in it stays in its order, because the model must see which answer belongs
    to which call.

    Args:
        turn: With the messages as they came.
        messages: All of them.
        must_ask: A conversation without a question is refused; else the model alone answers it.

    Raises:
        InvalidRequest: The user said nothing since the latest answer.
    """
    plain = all(map(conversation.searchable, messages))
    if not plain or not (must_ask or turn.query):
        return turn
    asked, others = conversation.split(messages)
    question = [messages[at] for at in asked]
    return replace(
        turn,
        question=PART_BREAK.join(message.text for message in question),
        history=tuple(messages[at] for at in others),
        original=replace(
            turn.original,
            question_extra_json=conversation.common_extra(question),
            question_gaps=conversation.gaps(question),
            messages=tuple(messages) if len(asked) > 1 else (),
            places=(*others, *asked),
        ),
    )


def with_profile(turn: Turn, asked: PromptOptions, parameters: dict[str, Any], *, composed: bool) -> Turn:
    """Return the turn with the prompt and the parameters of its profile, where it has some.

    Args:
        turn: As the request has it.
        asked: What the profile adds to the prompt.
        parameters: What the profile sets for the model where the request says nothing.
        composed: The model never gets the request as it came.
    """
    if not (composed or parameters or turn.answers_as or replace(asked, rewrite=False) != PromptOptions()):
        return turn if asked == turn.prompting else replace(turn, prompting=asked)
    plain = composed and not parameters and not turn.original.messages and b"null" not in turn.parameters_json
    if plain and asked == turn.prompting:
        return turn
    said = {name: raw for name, raw in _object.decode(turn.parameters_json).items() if bytes(raw) != b"null"}
    if any(name in said for name in _LIMITS):
        parameters = {name: value for name, value in parameters.items() if name not in _LIMITS}
    return replace(
        turn,
        prompting=asked,
        parameters_json=msgspec.json.encode(parameters | said),
        max_tokens=turn.max_tokens or parameters.get("max_tokens"),
        # The model gets it with these, whether anything is found or not.
        original=replace(turn.original, json=b"", messages=()),
    )
