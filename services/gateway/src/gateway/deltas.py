"""What models send beside their text: pieces of objects, put together as OpenAI's clients do."""

from typing import Any

import msgspec
from servicekit.errors import Unavailable

_object = msgspec.json.Decoder(dict[str, Any])
_COME_ONCE = frozenset(("id", "type", "role", "name"))
_REPEATED = "content_filter_results"


def members_of(raw_json: bytes) -> dict[str, Any]:
    """The members of an object that a model server sent.

    Raises:
        Unavailable: It is none.
    """
    try:
        members: dict[str, Any] = _object.decode(raw_json)
    except (ValueError, RecursionError) as error:
        raise Unavailable("The model server sent something that cannot be read.") from error
    return members


def merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds a streamed piece of a choice to what came before it, as OpenAI's clients do.

    Text grows (but for names and ids, which come once), lists of numbered things (tool calls) grow item by item,
    other lists (token log probabilities) are joined; a filter's results come again and again, the latest of each
    category holds.
    """
    for name, value in piece.items():
        before = whole.get(name)
        if name == _REPEATED and isinstance(value, dict):
            whole[name] = {**(before if isinstance(before, dict) else {}), **value}
        elif isinstance(value, dict) and isinstance(before, dict):
            merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            _merge_lists(before, value)
        elif isinstance(value, str) and isinstance(before, str) and name not in _COME_ONCE:
            whole[name] = before + value
        elif value is not None or name not in whole:
            whole[name] = value


def _merge_lists(whole: list[Any], piece: list[Any]) -> None:
    for item in piece:
        same = None
        if isinstance(item, dict) and "index" in item:
            number = item["index"]
            same = next((old for old in whole if isinstance(old, dict) and old.get("index") == number), None)
        if same is None:
            whole.append(item)
        else:
            merge(same, item)
