"""The types of a turn: a question with its conversation, its retrieval, its prompt and its other options."""

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
        text: The text, or empty if the content is a list of parts.
        content_json: The list of parts as the client sent it, or empty.
        extra_json: The other members as one JSON object, or empty.
        gaps: The positions of the line breaks in the text that join two parts of the message.
    """

    role: str
    text: str
    content_json: bytes = b""
    extra_json: bytes = b""
    gaps: tuple[int, ...] = ()

    @property
    def joined_text(self) -> str:
        """Return the text, or the joined text parts of a list of parts."""
        if not self.content_json:
            return self.text
        parts = msgspec.json.decode(self.content_json)
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def calls_tools(self) -> bool:
        """Return whether the message calls tools. Such a message is not an answer."""
        extra = msgspec.json.decode(self.extra_json) if self.extra_json else {}
        return any(extra.get(name) for name in ("tool_calls", "function_call"))


PART_BREAK = "\n\n"
"""The separator between the messages of one question."""


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
        dense_weight: The weight of vectors in a hybrid search, 0 to 1. Text search has the remaining weight.
        expand: Whether to expand the query with terms that the best passages have in common.
        diversity: The weight of novelty against the score, 0 to 1.
        neighbours: The number of chunks before and after a passage to return with it.
        reranker: The reranker for a request with reranking, or empty for the default reranker.
    """

    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    diversity: float = 0.0
    neighbours: int = 0
    reranker: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The options of the search for passages.

    Attributes:
        indexes: The indexes to search together. Without indexes there is no retrieval.
        top: The maximum number of passages. None derives it from the model's context window (`budget.candidates`).
        minimum_score: Omit passages with a lower score of the search. None omits no passage.
        similarity_threshold: Omit passages with a lower cosine similarity. None omits no passage.
        minimum_reranker_score: Omit passages with a lower score of the reranker, if a reranker runs. None omits no
            passage.
        semantic_ranker: Whether a reranker orders the results.
        semantic_captions: Whether the model receives the best sentences of the passages instead of the whole texts.
        context_token_ratio: The share of the free tokens that passages may take.
        metadata: The conditions on a document's metadata. A document must meet all conditions.
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
        SOURCES_AFTER_QUESTION: The platform's system prompt, the history, and the question with the passages.
        CONTEXT_IN_SYSTEM_MESSAGE: A system message with the passages, and the conversation as the client sent it.
        PLAIN_TEXT: A text that the model continues. The parameters are the parameters of a text completion.
    """

    SOURCES_AFTER_QUESTION = enum.auto()
    CONTEXT_IN_SYSTEM_MESSAGE = enum.auto()
    PLAIN_TEXT = enum.auto()


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """Options of a request whose prompt the platform writes (`PromptStyle.SOURCES_AFTER_QUESTION`).

    Attributes:
        system_prompt: The replacement of the platform's system prompt, or None to keep the platform's prompt.
        requested_prompt: The part of ``system_prompt`` that the request contains.
        rewrite: Whether the model writes the search query from the question and the history.
        follow_ups: Whether to ask the model for questions that the user may ask next.
        language: The language of the answer, as a language tag or a name. Empty means the question's language.
        pictures: Whether to send the model pictures of the pages in addition to their text.
        pictures_only: Whether to send the pictures in place of the text, if pictures exist.
    """

    system_prompt: str | None = None
    requested_prompt: str = ""
    rewrite: bool = False
    follow_ups: bool = False
    language: str = ""
    pictures: bool = False
    pictures_only: bool = False


@dataclass(frozen=True, slots=True)
class OriginalRequest:
    """The request in OpenAI's format, for dialects that may pass requests on to the model server unchanged.

    Attributes:
        json: The request without the platform's members, or empty in other dialects.
        passthrough: Whether to send ``json`` to the model unchanged, and to ignore the turn's other attributes.
        in_one_piece: Whether the client requests the answer in one piece. If output detectors judge it, the
            generator calls the model server without streaming.
        messages: The messages of the request, if the question contains several messages.
        places: The positions of the messages in the request: first the positions of the history, then of the
            question. Empty if the order is the same.
        tools_json: The tools that the model may call. They use tokens of the context window.
        question_extra_json: The other members of the question's message, as in `Message`.
        question_gaps: The gaps of the question, as in `Message`.
        required_indexes: Indexes that the request names but does not search. The gateway refuses an unknown index.
        deferred_error: The error of the request, or None. The pipeline raises it after the check of
            ``required_indexes``, because clients expect the error about an unknown index first.
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
    deferred_error: InvalidRequest | None = None


@dataclass(frozen=True, slots=True)
class DetectionOptions:
    """Options of the detection, for dialects whose requests can set them.

    Attributes:
        kinds: The detectors that the request names, each with the kinds that its field of the request supports. The
            pipeline checks them first.
        input_scope: The messages that the input detectors judge.
        blocked_is_empty: Whether the answer to a blocked question contains the question's token count and no
            choices.
        chunking: The positions at which the detectors may divide the answer. None allows any position, and only
            detectors that redact or block delay the text.
    """

    kinds: tuple[tuple[str, frozenset[DetectorKind]], ...] = ()
    input_scope: InputScope = InputScope.CONVERSATION
    blocked_is_empty: bool = False
    chunking: Chunking | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """The conversation that a turn belongs to, in dialects whose conversations have names.

    Attributes:
        name: The client's name for the conversation, or empty if the name is not text.
        is_new: Whether the gateway generated the name in this turn.
        is_whole: Whether the request contains the whole conversation. It does if it has a message of the assistant.
        expects_memory: Whether clients of the dialect send only the newest message.
    """

    name: str
    is_new: bool = False
    is_whole: bool = False
    expects_memory: bool = False


@dataclass(frozen=True, slots=True)
class SearchTool:
    """A search tool for the model, if the model can call tools.

    Attributes:
        max_searches: The maximum number of searches in one answer.
        name: The name of the function.
        first_choice_json: The tool that the model must call first, as OpenAI's ``tool_choice``, or empty.
    """

    max_searches: int
    name: str = "file_search"
    first_choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of the compaction, which replaces the earlier messages of a conversation by a summary.

    Attributes:
        threshold: The number of tokens above which the model summarises the conversation. None derives it from the
            model's context window.
        summary_only: Whether to generate only a summary, even of a short conversation.
    """

    threshold: int | None = None
    summary_only: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A question with its conversation and its options, without the wire format.

    A dialect sets the core fields, and the option objects that its requests use.

    Attributes:
        principal: The caller.
        question: The user's text since the last answer. Empty if the last message is a tool's result, or contains
            more than text. Then ``history`` includes the last message.
        history: The previous messages, including system messages, oldest first. Each file of the question is a user
            message after the latest answer.
        model: The name of the model, or empty for the generator's default model.
        model_alias: The model name in the answer, or empty for the name of the model.
        only_default_model: Whether to refuse a ``model`` that is not the generator's default model.
        retrieval: The options of the search for passages.
        style: The layout of the prompt.
        parameters_json: Members of an OpenAI request for the model (temperature, stop, n, …), one object.
        max_tokens: The maximum number of tokens of the answer. None allows as many tokens as fit.
        detectors: The detectors that judge the turn.
        blocked_message: The text that replaces a blocked answer.
        answers_blocked: Whether to answer a blocked question with ``blocked_message``. Otherwise refuse the
            question.
        session: The conversation of the turn, if conversations have names.
        headers: The request headers that detectors may receive, in lower case.
        unary: Whether the client receives the answer only when it is complete.
        truncates: Whether to omit the oldest exchanges of a conversation that does not fit the model's context
            window. Otherwise refuse such a conversation. If the platform writes the prompt, it always omits the
            exchanges.
        searching: The search tool for the model. None means that the platform searches before the model answers.
        compaction: The options of the compaction, or None without compaction.
        prompting: The options of the prompt.
        original: The request in OpenAI's format.
        detection: The options of the detection.
    """

    principal: Principal
    question: str
    history: tuple[Message, ...] = ()
    model: str = ""
    model_alias: str = ""
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
    def answer_model(self) -> str:
        """Return the model name for an answer in which the model server sends no name."""
        return self.model_alias or self.model

    @property
    def query(self) -> str:
        """Return the search query: the question, or, if it is empty, the user's messages since the latest answer.

        A message in which the model calls tools is no answer and belongs to the same question.
        """
        if self.question:
            return self.question
        collected: list[str] = []
        for message in reversed(self.history):
            if message.role == "assistant" and not message.calls_tools:
                break
            if message.role == "user" and (text := message.joined_text).strip():
                collected.insert(0, text)
        return PART_BREAK.join(collected)
