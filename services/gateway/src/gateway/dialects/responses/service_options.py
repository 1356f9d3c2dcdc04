"""Reads a request's options for the service and the model server: user, caches, access programs, prompt, image."""

from typing import Any

from gateway.dialects.json_fields import Fields

FORWARDED = ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user")
"""Strings that the gateway sends to the model server, as in chat completions, and repeats in the response."""

READ = ("access_programs", "image", "prompt", "prompt_cache_options", *FORWARDED)
"""The members that this module reads."""

_ABSENT: dict[str, Any] = {
    **dict.fromkeys(READ),
    # The gateway changes no input item. It refuses an unsupported item, or drops it and names it in a header.
    "input_transformations": [],
    "moderation": None,
    "prompt_cache_diagnostics": None,
}
"""The members of a response to a request that has none of these options."""

_CACHE_MODES = ("implicit", "explicit")
_CACHE_TTLS = ("30m", "12h")
_COMPRESSIONS = ("auto", "enabled", "disabled")
_PROGRAMS = ("standard", "daybreak_blue", "daybreak_red")


def forwarded(fields: Fields) -> dict[str, Any]:
    """Return the options to send to the model server.

    Raises:
        InvalidRequest: A member is invalid.
    """
    if fields.names().isdisjoint(READ):
        return {}
    members: dict[str, Any] = {name: text for name in FORWARDED if (text := fields.text(name))}
    if options := _cache_options(fields):
        members["prompt_cache_options"] = options
    return members


def response_members(fields: Fields) -> dict[str, Any]:
    """Return the members of the response that repeat these options.

    Raises:
        InvalidRequest: A member requests a feature that the platform does not have.
    """
    if fields.names().isdisjoint(READ):
        return _ABSENT
    options = _cache_options(fields)
    comparison_id = fields.object("prompt_cache_options").text("comparison_response_id")
    cache = {"mode": "implicit", "ttl": "30m"} | options if options else None
    if cache and comparison_id:
        cache["comparison_response_id"] = comparison_id
    return _ABSENT | {
        "access_programs": _programs(fields),
        "image": _image(fields),
        "prompt": _prompt(fields),
        "prompt_cache_diagnostics": {"type": "unavailable"} if comparison_id else None,
        "prompt_cache_options": cache,
        **{name: fields.text(name) or None for name in FORWARDED},
    }


def prompt_name(fields: Fields) -> str:
    """Return the name of the assistant that a request names as its prompt, or an empty string.

    Raises:
        InvalidRequest: The prompt has no name or a member that assistants do not support, or the request names a
            model other than the assistant.
    """
    if fields.get("prompt") is None:
        return ""
    prompt = fields.object("prompt")
    if not (name := prompt.text("id")):
        raise prompt.invalid("id", "must be the name of an assistant")
    if prompt.text("version"):
        raise prompt.invalid("version", "must be absent: an assistant has only one version")
    if any(prompt.object("variables").members()):
        raise prompt.invalid("variables", "must be absent or empty: the prompt of an assistant has no variables")
    if (model := fields.text("model")) and model != name:
        raise fields.invalid(
            "model", "must be absent or the same name as prompt.id: the assistant selects the model"
        )
    return name


def _prompt(fields: Fields) -> dict[str, Any] | None:
    name = fields.object("prompt").text("id")
    return {"id": name, "variables": None, "version": None} if name else None


def _cache_options(fields: Fields) -> dict[str, Any]:
    """Return the cache options for the model server, without ``comparison_response_id``."""
    options = fields.object("prompt_cache_options")
    if options.flag("prewarm"):
        raise options.invalid("prewarm", "is not supported: the gateway cannot fill the cache without an answer")
    members = {"mode": options.one_of("mode", _CACHE_MODES), "ttl": options.one_of("ttl", _CACHE_TTLS)}
    return {name: value for name, value in members.items() if value}


def _image(fields: Fields) -> dict[str, str] | None:
    image = fields.object("image")
    choice = image.one_of("context_compression", _COMPRESSIONS)
    if choice == "enabled":
        raise image.invalid("context_compression", "must be auto or disabled: the model gets pictures unchanged")
    return {"context_compression": "disabled"} if choice else None


def _programs(fields: Fields) -> dict[str, str] | None:
    programs = fields.object("access_programs")
    choice = programs.one_of("cyber", _PROGRAMS)
    if choice not in ("", "standard"):
        raise programs.invalid("cyber", "must be standard: no other program is supported")
    return {"cyber": choice} if choice else None
