"""Chat templates, which render messages as the text that a model reads.

They are Jinja templates, which Hugging Face stores with a tokenizer:
https://huggingface.co/docs/transformers/chat_templating. A template comes with a model and is untrusted. It
therefore runs in a sandbox.
"""

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from servicekit.errors import InvalidRequest

from generator.domain import ChatMessage

if TYPE_CHECKING:
    import jinja2.sandbox

DEFAULT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""The default template: the role and the text of each message."""

_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class _Refused(Exception):
    """The template called `raise_exception`."""


class ChatTemplate:
    """Renders conversations; any thread may use it.

    Args:
        source: The template.
        special_tokens: The names and texts of the tokenizer's special tokens, ``bos_token`` and others.

    Raises:
        ValueError: The source is not a valid template.
    """

    def __init__(self, source: str = DEFAULT_TEMPLATE, special_tokens: Mapping[str, str] | None = None) -> None:
        import jinja2

        self._special_tokens = dict(special_tokens or {})
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ValueError(f"The chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt, up to the place where the model's answer begins.

        Raises:
            InvalidRequest: The template does not accept these messages.
        """
        import jinja2

        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except _Refused as error:
            raise InvalidRequest(f"The model does not accept these messages: {error}", field="messages") from error
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, OverflowError) as error:
            raise InvalidRequest(
                "The model's chat template does not accept these messages.", field="messages"
            ) from error

    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the result of `render` without the ``bos_token``, because the server adds this token."""
        return self.render(messages).removeprefix(self._special_tokens.get("bos_token", ""))


def load_template(location: str) -> ChatTemplate:
    """Load a template.

    Args:
        location: The source (any text with a brace), a ``tokenizer_config.json``, the directory of this file,
            another file with the source, or an empty text for `DEFAULT_TEMPLATE`. A ``chat_template.jinja`` in the
            same directory has priority over ``tokenizer_config.json``, even if ``location`` names the latter.

    Raises:
        ValueError: The file does not exist, cannot be read, or contains no valid template.
        OSError: The path is too long, or its directory cannot be accessed.
    """
    if not location or "{" in location:
        return ChatTemplate(location or DEFAULT_TEMPLATE)
    path = Path(location)
    if path.is_dir() or path.name == _CONFIG:
        directory = path if path.is_dir() else path.parent
        return _load_from_directory(directory, path if path.is_file() else directory / _CONFIG)
    return _load_from_file(path, path.parent / _CONFIG)


def tokenizer_template(tokenizer: Path) -> ChatTemplate | None:
    """Return the template in a tokenizer's directory; None if the directory has no template.

    Raises:
        ValueError: The template cannot be read.
    """
    directory = tokenizer.parent
    config = directory / _CONFIG
    if not (directory / _TEMPLATE).is_file() and not (config.is_file() and _config(config).get("chat_template")):
        return None
    return load_template(str(directory))


def text_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages in the format of templates, with texts only.

    Raises:
        InvalidRequest: A message is the result of a tool, calls tools, or has content other than text. The error
            has the path of the cause.
    """
    return [_text_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _text_message(message: ChatMessage, path: str) -> dict[str, Any]:
    if message.role in ("tool", "function"):
        raise InvalidRequest("This model does not accept results of tools.", field=f"{path}.role")
    extra = msgspec.json.decode(message.extra_json) if message.extra_json else {}
    for name in ("tool_calls", "function_call", "audio"):
        if extra.get(name):
            raise InvalidRequest(f"This model does not accept '{name}'.", field=f"{path}.{name}")
    # Templates use the role "system" for OpenAI's "developer".
    role = "system" if message.role == "developer" else message.role
    return {**({"name": extra["name"]} if "name" in extra else {}), "role": role, "content": _text(message, path)}


def _text(message: ChatMessage, path: str) -> str:
    if not message.content_json:
        return message.text
    texts = []
    for index, part in enumerate(msgspec.json.decode(message.content_json)):
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else None
            raise InvalidRequest(
                f"This model accepts only text, not parts of type '{kind}'.", field=f"{path}.content[{index}]"
            )
        texts.append(text)
    return "\n".join(texts)


def _load_from_directory(directory: Path, config: Path) -> ChatTemplate:
    template = directory / _TEMPLATE
    if template.is_file():
        return _load_from_file(template, config)
    chosen = _config(config).get("chat_template")
    if isinstance(chosen, list):  # several templates with names
        chosen = next((entry.get("template") for entry in chosen if entry.get("name") == "default"), None)
    if chosen:
        return ChatTemplate(str(chosen), _special_tokens_of(config))
    raise ValueError(f"{config} contains no chat template.")


def _load_from_file(template: Path, config: Path) -> ChatTemplate:
    try:
        source = template.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"The chat template {template} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"The chat template {template} cannot be read: it is not UTF-8.") from error
    return ChatTemplate(source, _special_tokens_of(config))


def _special_tokens_of(config: Path) -> dict[str, str]:
    if not config.is_file():
        return {}
    special_tokens = {}
    for name, value in _config(config).items():
        text = value.get("content") if isinstance(value, dict) else value
        if name in _SPECIAL and isinstance(text, str):
            special_tokens[name] = text
    return special_tokens


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


@functools.cache
def _environment() -> "jinja2.sandbox.ImmutableSandboxedEnvironment":
    # Imported here, because few deployments need it.
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda layout: datetime.datetime.now().astimezone().strftime(layout)
    return environment


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise _Refused(message)
