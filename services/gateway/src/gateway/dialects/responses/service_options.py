"""Members of a request for the service and the model server: the user, caches, access programs, prompts."""

from typing import Any

from gateway.dialects.json_fields import Fields

FORWARDED = ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user")
"""Texts that the model server gets, as with chat completions, and that the response repeats."""

READ = ("access_programs", "image", "prompt", "prompt_cache_options", *FORWARDED)
"""All members that are read here."""

_UNSAID: dict[str, Any] = {
    **dict.fromkeys(READ),
    # The gateway changes no input item. It refuses an item that it does not support, or names it in a header.
    "input_transformations": [],
    "moderation": None,
    "prompt_cache_diagnostics": None,
}
"""The members of a response whose request has none of them."""

_CACHE_MODES = ("implicit", "explicit")
_CACHE_TIMES = ("30m", "12h")
_COMPRESSIONS = ("auto", "enabled", "disabled")
_PROGRAMS = ("standard", "daybreak_blue", "daybreak_red")


def forwarded(said: Fields) -> dict[str, Any]:
    """Return the members of the chat that the model server gets.

    Raises:
        InvalidRequest: One is wrong.
    """
    if said.names().isdisjoint(READ):
        return {}
    found: dict[str, Any] = {name: text for name in FORWARDED if (text := said.text(name))}
    if options := _cache_options(said):
        found["prompt_cache_options"] = options
    return found


def shown(said: Fields) -> dict[str, Any]:
    """Return these members as the response repeats them.

    Raises:
        InvalidRequest: A member asks for a feature that the platform does not have.
    """
    if said.names().isdisjoint(READ):
        return _UNSAID
    options = _cache_options(said)
    compared = said.object("prompt_cache_options").text("comparison_response_id")
    cache = {"mode": "implicit", "ttl": "30m"} | options if options else None
    if cache and compared:
        cache["comparison_response_id"] = compared
    return _UNSAID | {
        "access_programs": _programs(said),
        "image": _image(said),
        "prompt": _prompt(said),
        "prompt_cache_diagnostics": {"type": "unavailable"} if compared else None,
        "prompt_cache_options": cache,
        **{name: said.text(name) or None for name in FORWARDED},
    }


def prompt_name(said: Fields) -> str:
    """Return the name of the assistant that a request names as its prompt; empty: none.

    Raises:
        InvalidRequest: It uses a feature that assistants do not have, or the request also names another model.
    """
    if said.get("prompt") is None:
        return ""
    prompt = said.object("prompt")
    if not (name := prompt.text("id")):
        raise prompt.wrong("id", "must be the name of an assistant")
    if prompt.text("version"):
        raise prompt.wrong("version", "is not supported: an assistant has one version")
    if any(prompt.object("variables").members()):
        raise prompt.wrong("variables", "is not supported: the prompt of an assistant has no variables")
    if (model := said.text("model")) and model != name:
        raise said.wrong("model", "must be left out beside a prompt: the assistant selects the model")
    return name


def _prompt(said: Fields) -> dict[str, Any] | None:
    name = said.object("prompt").text("id")
    return {"id": name, "variables": None, "version": None} if name else None


def _cache_options(said: Fields) -> dict[str, Any]:
    """Return the cache options for the model server, which does not know the response to compare with."""
    options = said.object("prompt_cache_options")
    if options.flag("prewarm"):
        raise options.wrong("prewarm", "is not supported: each request is answered")
    found = {"mode": options.one_of("mode", _CACHE_MODES), "ttl": options.one_of("ttl", _CACHE_TIMES)}
    return {name: value for name, value in found.items() if value}


def _image(said: Fields) -> dict[str, str] | None:
    image = said.object("image")
    asked = image.one_of("context_compression", _COMPRESSIONS)
    if asked == "enabled":
        raise image.wrong("context_compression", "must be auto or disabled: pictures go to the model unchanged")
    return {"context_compression": "disabled"} if asked else None


def _programs(said: Fields) -> dict[str, str] | None:
    programs = said.object("access_programs")
    asked = programs.one_of("cyber", _PROGRAMS)
    if asked not in ("", "standard"):
        raise programs.wrong("cyber", "must be standard: no other program is supported")
    return {"cyber": asked} if asked else None
