from dataclasses import replace

from gateway.answering import prompts
from gateway.domain import Message, Passage, PromptOptions, PromptStyle, Retrieval, Turn
from servicekit.principal import LOCAL

PASSAGE = Passage("p", "docs", "d", "a.pdf", "a.pdf#page=2", "\none\n two  three\n\n", 1.0)
HISTORY = (Message("user", "before"), Message("assistant", "yes"))


def turn(style: PromptStyle, **more: object) -> Turn:
    return Turn(LOCAL, "why?", HISTORY, retrieval=Retrieval(("docs",)), style=style, **more)  # type: ignore[arg-type]  # keywords of a test


def test_sources_follow_the_question() -> None:
    """The sources follow the question, and the lines of a passage keep their indentation."""
    system, *history, question = prompts.compose(turn(PromptStyle.SOURCES_AFTER_QUESTION), [PASSAGE])
    assert system == Message("system", prompts.ANSWER_FROM_SOURCES)
    assert tuple(history) == HISTORY
    assert question == Message("user", "why?\n\nSources:\na.pdf#page=2: one\n two  three")


def test_a_system_prompt_replaces_the_default_one() -> None:
    """A system prompt of the request replaces the default one, even if it is empty."""
    for own in ("Be kind.", ""):
        system, *_ = prompts.compose(
            turn(PromptStyle.SOURCES_AFTER_QUESTION, prompting=PromptOptions(system_prompt=own)), [PASSAGE]
        )
        assert system == Message("system", own)


def test_language_and_questions_follow_the_system_prompt() -> None:
    """The language and the request for questions follow the system prompt, also an empty one."""
    style = PromptStyle.SOURCES_AFTER_QUESTION
    for own, first in ((None, prompts.ANSWER_FROM_SOURCES), ("Be kind.", "Be kind."), ("", "")):
        system, *_ = prompts.compose(
            turn(style, prompting=PromptOptions(system_prompt=own, language="de", follow_ups=True)), []
        )
        expected = [first, prompts.IN_LANGUAGE.format("de")]
        assert system.text.split("\n") == [
            *(line for line in "\n".join(expected).split("\n") if line),
            prompts.FOLLOW_UPS,
        ]


def test_the_context_is_a_system_message_in_front() -> None:
    """The sources are a system message before the history and the question."""
    system, *history, question = prompts.compose(turn(PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE), [PASSAGE])
    assert system.role == "system"
    assert system.text.endswith("a.pdf#page=2: one\n two  three")
    assert tuple(history) == HISTORY
    assert question == Message("user", "why?")


def test_without_passages_the_messages_are_the_callers() -> None:
    """Without passages, the messages are the caller's own ones."""
    style = PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE
    assert prompts.compose(turn(style), []) == (*HISTORY, Message("user", "why?"))
    assert prompts.compose(Turn(LOCAL, "", HISTORY, style=style), []) == HISTORY


def test_captions_replace_the_text_of_a_passage() -> None:
    """Captions replace the text of a passage if the text still contains them."""
    passage = replace(PASSAGE, captions=("one", "three"))
    assert prompts.data_point(passage) == "a.pdf#page=2: one three"
    assert prompts.data_point(replace(passage, text="[REDACTED] two three")) == "a.pdf#page=2: three"
    assert prompts.data_point(replace(passage, text="nothing left")) == "a.pdf#page=2: nothing left"
