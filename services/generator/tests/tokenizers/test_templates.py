"""Chat templates."""

import json
from pathlib import Path

import pytest
from generator.domain import ChatMessage
from generator.tokenizers.templates import ChatTemplate, load_template, text_messages, tokenizer_template
from servicekit.errors import InvalidRequest

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi {{ 1 + 1 }}"}]


def test_a_directory_has_the_template_and_the_special_tokens(tokenizer_directory: Path) -> None:
    """A directory or its ``tokenizer_config.json`` has the template and the special tokens. Template syntax in a
    message is plain text, and a prompt has no begin token.
    """
    text = "<|system|>Be kind.<|end|><|user|>Hi {{ 1 + 1 }}<|end|><|assistant|>"
    for source in (tokenizer_directory, tokenizer_directory / "tokenizer_config.json"):
        template = load_template(str(source))
        assert template.render(MESSAGES) == "<|begin|>" + text
        assert template.prompt(MESSAGES) == text


def test_a_tokenizer_may_have_a_template_beside_it(tokenizer_directory: Path, tmp_path: Path) -> None:
    """A tokenizer's template is the one in its directory. A directory may have no template."""
    template = tokenizer_template(tokenizer_directory / "tokenizer.json")
    assert template is not None
    assert template.prompt(MESSAGES[:1]) == "<|system|>Be kind.<|end|><|assistant|>"
    assert tokenizer_template(tmp_path / "tokenizer.json") is None
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert tokenizer_template(tmp_path / "tokenizer.json") is None


def test_a_template_may_be_a_file_or_the_source(tmp_path: Path) -> None:
    """A template is a directory, a file with the special tokens beside it, or its source. In a directory,
    ``chat_template.jinja`` takes precedence. An empty text is the default template.
    """
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "chat_template": "x"}))
    (tmp_path / "own.jinja").write_text("{{ bos_token }}own")
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}beside")
    assert load_template(str(tmp_path / "own.jinja")).render(MESSAGES) == "<s>own"
    assert load_template(str(tmp_path)).render(MESSAGES) == "<s>beside"
    assert load_template("{{ messages|length }}").render(MESSAGES) == "2"
    assert load_template("").render(MESSAGES[:1]) == "system: Be kind.\n\nassistant:"


def test_the_default_of_several_templates_is_used(tmp_path: Path) -> None:
    """The default is used if a model has several templates."""
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert load_template(str(tmp_path)).render(MESSAGES) == "d"


def test_templates_have_their_usual_functions() -> None:
    """Templates can use JSON, loop controls, the date, and exceptions with a message for clients."""
    source = (
        "{% for m in messages %}\n  {% if loop.index == 2 %}{% break %}{% endif %}\n{{ m | tojson }}\n{% endfor %}"
        "{{ strftime_now('%Y') | length }}"
    )
    assert ChatTemplate(source).render(MESSAGES) == '{"role": "system", "content": "Be kind."}\n4'
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(MESSAGES)
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__ }}",
        "{{ messages[9].content.x }}",
    ],
)
def test_templates_cannot_leave_their_sandbox(source: str) -> None:
    """A template that accesses internals, changes the messages or fails causes InvalidRequest."""
    with pytest.raises(InvalidRequest, match="does not accept these messages") as caught:
        ChatTemplate(source).render(MESSAGES)
    assert caught.value.field == "messages"


def test_a_bad_template_is_an_error_at_once(tmp_path: Path) -> None:
    """A bad template is refused when it is loaded, with its file."""
    with pytest.raises(ValueError, match="chat template cannot be read"):
        ChatTemplate("{% for %}")
    with pytest.raises(ValueError, match=r"nowhere\.jinja cannot be read"):
        load_template(str(tmp_path / "nowhere.jinja"))
    with pytest.raises(ValueError, match=r"tokenizer_config\.json cannot be read"):
        load_template(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="contains no chat template"):
        load_template(str(tmp_path))
    (tmp_path / "chat_template.jinja").write_bytes("für".encode("latin-1"))
    for location in (tmp_path, tmp_path / "chat_template.jinja"):
        with pytest.raises(ValueError, match=r"chat_template\.jinja cannot be read: it is not UTF-8"):
            load_template(str(location))


def test_messages_become_plain() -> None:
    """Parts of text are joined, the developer role becomes system, and names stay."""
    messages = [
        ChatMessage("developer", "Be kind."),
        ChatMessage("user", content_json=b'[{"type":"text","text":"a"},"b"]', extra_json=b'{"name":"Ann"}'),
    ]
    assert text_messages(messages) == [
        {"role": "system", "content": "Be kind."},
        {"name": "Ann", "role": "user", "content": "a\nb"},
    ]
