"""The question of a caller: the turn and its options."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from gateway.domain.detection import Chunking, DetectorKind, Detectors, InputScope
from gateway.domain.text_documents import Equals


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant``, ``developer`` or ``tool``.
        text: Its text; empty where the content is a list of parts.
        content_json: The list of parts as the client sent it, else empty.
        extra_json: Its other members as one JSON object, else empty.
        gaps: The positions of the line breaks in the text that join two parts of the message.
    """

    role: str
    text: str
    content_json: bytes = b""
    extra_json: bytes = b""
    gaps: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Return its text; of a list of parts, the joined text parts."""
        if not self.content_json:
            return self.text
        parts = msgspec.json.decode(self.content_json)
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def calls_tools(self) -> bool:
        """Return whether the message calls tools, so that it does not answer yet."""
        extra = msgspec.json.decode(self.extra_json) if self.extra_json else {}
        return any(extra.get(name) for name in ("tool_calls", "function_call"))


PART_BREAK = "\n\n"
"""Separates the messages that a question is made from."""


class RetrievalMode(enum.Enum):
    """The kind of search."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Options of a search, from the profile of a front end. None means the index's own setting.

    Attributes:
        fusion: The fusion of a hybrid search: ``scores`` or ``ranks``.
        dense_weight: The weight of vectors in a hybrid search, 0 to 1; text search has the rest.
        expand: Expand the query with terms that the best passages have in common.
        diversity: The weight of novelty against the score, 0 to 1.
        neighbours: The number of chunks before and after a passage to return with it.
        reranker: The reranker to use, if the request wants one; empty: the default one.
    """

    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    diversity: float = 0.0
    neighbours: int = 0
    reranker: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Where and how to search for passages.

    Attributes:
        indexes: The indexes to search together; empty: no retrieval.
        top: The maximum number of passages; None: the model's context window decides (`budget.candidates`).
        minimum_score: Omit passages with a lower score.
        similarity_threshold: Omit passages with a lower cosine similarity; None: omit none.
        minimum_reranker_score: Omit passages with a lower score of the reranker, if a reranker runs.
        semantic_ranker: Let a reranker order the results.
        semantic_captions: Give the model the best sentences of the passages instead of the whole texts.
        context_token_ratio: The share of the available tokens that passages may take.
        metadata: The conditions on a document's metadata; all must hold.
        tuning: Further options of the search.
    """

    indexes: tuple[str, ...] = ()
    mode: RetrievalMode = RetrievalMode.HYBRID
    top: int | None = None
    include_category: str = ""
    exclude_category: str = ""
    minimum_score: float | None = None
    similarity_threshold: float | None = None
    minimum_reranker_score: float | None = None
    semantic_ranker: bool = False
    semantic_captions: bool = False
    context_token_ratio: float = 0.5
    metadata: tuple[Equals, ...] = ()
    tuning: Tuning = Tuning()


class PromptStyle(enum.Enum):
    """The layout of the prompt.

    Attributes:
        SOURCES_AFTER_QUESTION: The platform's system prompt, the history, the question with the passages below it.
        CONTEXT_IN_SYSTEM_MESSAGE: The conversation as the client sent it, after a system message with the passages.
        PLAIN_TEXT: The question is a text that the model continues; the parameters are those of a text completion.
    """

    SOURCES_AFTER_QUESTION = enum.auto()
    CONTEXT_IN_SYSTEM_MESSAGE = enum.auto()
    PLAIN_TEXT = enum.auto()


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """Options of a request whose prompt the platform writes (`PromptStyle.SOURCES_AFTER_QUESTION`).

    Attributes:
        system_prompt: Replaces the platform's system prompt; None: keep the platform's.
        own_prompt: The part of ``system_prompt`` that the request contains.
        rewrite: The model makes the search query from the question and the history.
        follow_ups: Ask the model for questions that the user may ask next.
        language: The language of the answer, as a language tag or a name; empty: the question's language.
        pictures: Give the model pictures of the pages beside their text.
        pictures_only: Give it the pictures instead of the text, if pictures exist.
    """

    system_prompt: str | None = None
    own_prompt: str = ""
    rewrite: bool = False
    follow_ups: bool = False
    language: str = ""
    pictures: bool = False
    pictures_only: bool = False


@dataclass(frozen=True, slots=True)
class OriginalRequest:
    """The request in OpenAI's format, for dialects that may pass requests on to the model server unchanged.

    Attributes:
        json: The request without the platform's own members; empty in other dialects.
        passthrough: Send ``json`` to the model unchanged, and ignore the rest of the turn.
        in_one_piece: Send the answer in one piece.
        messages: Its messages, if the question was made from several.
        places: The positions of the messages in the request: first those of the history, then those of the
            question; empty: the same order.
        tools_json: The tools that the model may call; they take tokens of its context window.
        question_extra_json: The other members of the message that holds the question, as in `Message`.
        question_gaps: The gaps of the question, as in `Message`.
        required_indexes: Indexes that the request names but does not search; an unknown one is still refused.
        objection: The error of the request. The pipeline raises it after it has checked ``required_indexes``:
            clients expect the error about an unknown index first.
    """

    json: bytes = b""
    passthrough: bool = False
    in_one_piece: bool = False
    messages: tuple[Message, ...] = ()
    places: tuple[int, ...] = ()
    tools_json: bytes = b""
    question_extra_json: bytes = b""
    question_gaps: tuple[int, ...] = ()
    required_indexes: tuple[str, ...] = ()
    objection: InvalidRequest | None = None


@dataclass(frozen=True, slots=True)
class DetectionOptions:
    """How detectors judge a turn, for dialects whose requests can set it.

    Attributes:
        kinds: The detectors that the request names, each with the kinds that are allowed at its place. The pipeline
            checks them first.
        input_scope: The messages that the input detectors judge.
        blocked_is_empty: The answer to a blocked question has no choices, and the number of tokens of the question.
        chunking: Where to cut the answer for the detectors; None: anywhere, and only detectors that redact or block
            delay the text.
    """

    kinds: tuple[tuple[str, frozenset[DetectorKind]], ...] = ()
    input_scope: InputScope = InputScope.CONVERSATION
    blocked_is_empty: bool = False
    chunking: Chunking | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """The conversation that a turn belongs to, in dialects whose conversations have names.

    Attributes:
        name: The client's name for it; empty if it is not text.
        is_new: The server made the name in this turn.
        is_whole: The request contains an answer, and so it has the whole conversation.
        expects_memory: Clients of the dialect send only the newest message.
    """

    name: str
    is_new: bool = False
    is_whole: bool = False
    expects_memory: bool = False


@dataclass(frozen=True, slots=True)
class SearchTool:
    """A search tool that the model may call while it answers, if the model calls tools.

    Attributes:
        most: The maximum number of searches in one answer.
        name: The name of the function.
        first_choice_json: The tool that the model must call first, as OpenAI's ``tool_choice``; empty: no
            constraint.
    """

    most: int
    name: str = "file_search"
    first_choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """When the model summarises a conversation, so that a summary takes the place of what was said.

    Attributes:
        threshold: A longer conversation, in tokens, is summarised; None: depends on the model's context window.
        alone: Nothing but the summary is asked for, however short the conversation is.
    """

    threshold: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A question with everything that the pipeline needs, without the wire format.

    A dialect sets the core fields, and those option objects that its requests use.

    Attributes:
        principal: The caller on whose behalf the pipeline works.
        question: The user's text since the last answer. Empty if the last message is not the user's (a tool's
            result), or is not only text; then it is the last message of ``history``.
        history: The previous messages, oldest first, with system messages; and files that belong to the question,
            after the latest answer.
        model: Empty: the generator's default model.
        answers_as: The model name to put in the answer; empty: the name of the model.
        only_default_model: Refuse a ``model`` that is not the generator's default model.
        retrieval: Where and how to search for passages.
        style: The layout of the prompt.
        parameters_json: Members of an OpenAI request for the model (temperature, stop, n, …), one object.
        max_tokens: The maximum number of tokens of the answer; None: as many as fit.
        detectors: The detectors that judge the turn.
        blocked_message: Replaces a blocked answer.
        answers_blocked: Answer a blocked question with ``blocked_message``; else refuse it.
        session: The conversation of the turn, if conversations have names.
        headers: The request headers that detectors may get, in lower case.
        unary: The client gets the answer only when it is complete.
        truncates: Omit the oldest exchanges if the model's context window cannot hold all of them; else refuse a
            conversation that is too long. They are always omitted if the platform writes the prompt.
        searching: Let the model call searches, if it calls tools; None: the platform searches first.
    """

    principal: Principal
    question: str
    history: tuple[Message, ...] = ()
    model: str = ""
    answers_as: str = ""
    only_default_model: bool = False
    retrieval: Retrieval = Retrieval()
    style: PromptStyle = PromptStyle.SOURCES_AFTER_QUESTION
    parameters_json: bytes = b"{}"
    max_tokens: int | None = None
    detectors: Detectors = field(default_factory=Detectors)
    blocked_message: str = ""
    answers_blocked: bool = False
    session: Session | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    unary: bool = False
    truncates: bool = False
    searching: SearchTool | None = None
    compaction: CompactionOptions | None = None
    prompting: PromptOptions = PromptOptions()
    original: OriginalRequest = OriginalRequest()
    detection: DetectionOptions = DetectionOptions()

    @property
    def shown_model(self) -> str:
        """Return the model name of the answer if the model server gives none."""
        return self.answers_as or self.model

    @property
    def query(self) -> str:
        """Return the search query: the question, or without one the user's messages since the latest answer.

        A message in which the model calls tools is no answer: it still belongs to the same question.
        """
        if self.question:
            return self.question
        collected: list[str] = []
        for message in reversed(self.history):
            if message.role == "assistant" and not message.calls_tools:
                break
            if message.role == "user" and (words := message.words).strip():
                collected.insert(0, words)
        return PART_BREAK.join(collected)
