"""What is asked."""

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
        content_json: The list of parts as it came, else empty.
        extra_json: Its other members as one JSON object, else empty.
        gaps: Where in the text a line break is that joins two parts of the message.
    """

    role: str
    text: str
    content_json: bytes = b""
    extra_json: bytes = b""
    gaps: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Its text, also if that is in parts beside others."""
        if not self.content_json:
            return self.text
        parts = msgspec.json.decode(self.content_json)
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def calls_tools(self) -> bool:
        """Whether the model calls tools in it, and so has not answered yet."""
        extra = msgspec.json.decode(self.extra_json) if self.extra_json else {}
        return any(extra.get(name) for name in ("tool_calls", "function_call"))


PART_BREAK = "\n\n"
"""Stands in a question between the messages that it was put together from."""


class RetrievalMode(enum.Enum):
    """How passages are searched."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a search weighs what it finds; a front end's profile says it. None: as the indexes have it.

    Attributes:
        fusion: How a hybrid search fuses: ``scores`` or ``ranks``.
        dense_weight: What meaning counts for in a hybrid search, 0 to 1, words having the rest.
        expand: Further words are searched for, those that the best passages have in common.
        diversity: How much what is new in a passage counts beside its score, 0 to 1.
        neighbours: So many chunks before and behind a passage come with it.
        reranker: The one that orders what was found, where one is wanted; empty: the default.
    """

    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    diversity: float = 0.0
    neighbours: int = 0
    reranker: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Where and how to look for passages.

    Attributes:
        indexes: Searched together; none means no retrieval.
        top: Most passages; None lets the model's context window decide (`budget.candidates`).
        minimum_score: Passages below are left out.
        similarity_threshold: Passages whose cosine similarity is lower are left out; None: none are.
        minimum_reranker_score: Likewise, by the reranker's score, where one is wanted and runs.
        semantic_ranker: Have a reranker order what was found.
        semantic_captions: Give the model the best sentences of the passages instead of the whole.
        context_token_ratio: Share of the available tokens that passages may take.
        metadata: What must stand in a document's metadata, all of it.
        tuning: How what is found is weighed.
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
    """How the prompt is put together.

    Attributes:
        SOURCES_AFTER_QUESTION: The platform's system prompt, the history, the question with the passages below it.
        CONTEXT_IN_SYSTEM_MESSAGE: The conversation as it came, the passages in a system message before it.
        PLAIN_TEXT: The question is a text that the model continues; the parameters are those of a text completion.
    """

    SOURCES_AFTER_QUESTION = enum.auto()
    CONTEXT_IN_SYSTEM_MESSAGE = enum.auto()
    PLAIN_TEXT = enum.auto()


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What a request may choose where the platform words the prompt (`PromptStyle.SOURCES_AFTER_QUESTION`).

    Attributes:
        system_prompt: Replaces the platform's own; None: it does not.
        own_prompt: The words of ``system_prompt`` that are the request's.
        rewrite: The model makes the search query from the question and the history.
        follow_ups: The model is asked for questions that the user may ask next.
        language: The answer's, as a language tag or a name; empty: the question's.
        pictures: The model gets pictures of the pages beside their text.
        pictures_only: Instead of their text, where there are pictures of them.
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
    """The request in the format of OpenAI, for dialects whose requests may reach the model server unchanged.

    Attributes:
        json: The request, less the platform's own members; empty in other dialects.
        passthrough: ``json`` goes to the model as it is, and the rest of the turn does not matter.
        in_one_piece: The answer goes out in one piece.
        messages: Its messages, where the question was put together from several.
        places: Where in the request the messages stand: those of the history, then those that the question was put
            together from; empty: in this order.
        tools_json: The tools that the model may call, which take room in its window.
        question_extra_json: Other members of the message that the question came in, as of `Message`.
        question_gaps: Its gaps, likewise.
        required_indexes: Named by the request and not searched for it; an unknown one is refused all the same.
        objection: What is wrong with the request. The pipeline raises it once the ``required_indexes`` are known to
            exist, because clients learn of an unknown index first.
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
    """How detectors judge a turn, for dialects whose requests choose it.

    Attributes:
        kinds: Detectors that the request names, and what each may look at where it is named; the pipeline checks
            them before anything else happens.
        input_scope: Which messages the input detectors judge.
        blocked_is_empty: A question that the detectors stopped is answered by no choices, and its number of tokens.
        chunking: How the answer is cut where detectors judge it; None: anywhere, and text waits only for those that
            protect it.
    """

    kinds: tuple[tuple[str, frozenset[DetectorKind]], ...] = ()
    input_scope: InputScope = InputScope.CONVERSATION
    blocked_is_empty: bool = False
    chunking: Chunking | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """The conversation that a turn belongs to, in dialects whose conversations have names.

    Attributes:
        name: What the client calls it; empty where that is no text.
        is_new: The name is the server's, given with this turn.
        is_whole: The request has an answer in it, and so the whole conversation.
        expects_memory: Clients of the dialect send the newest message alone.
    """

    name: str
    is_new: bool = False
    is_whole: bool = False
    expects_memory: bool = False


@dataclass(frozen=True, slots=True)
class SearchTool:
    """A search that the model may call while it answers, where it calls tools.

    Attributes:
        most: Most searches of the answer.
        name: Of the function.
        first_choice_json: What the model must call first, as OpenAI's ``tool_choice``; empty: nothing.
    """

    most: int
    name: str = "file_search"
    first_choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked: everything the pipeline needs, nothing of how it was said.

    A dialect sets the core, and of the option objects only those that its requests have something for.

    Attributes:
        principal: On whose behalf the pipeline works.
        question: The user's words since the last answer. Empty where the last word is not the user's (a tool's
            result), or holds more than text; the last message of the history is that word then.
        history: What was said before, oldest first, system messages included; and what belongs to the question (the
            files that came with it), behind the latest answer.
        model: Empty: the generator's default.
        answers_as: Name that the answer carries instead of the model's; empty: the model's.
        only_default_model: ``model``, where it is named, must be the generator's default one.
        retrieval: Where and how to look for passages.
        style: How the prompt is put together.
        parameters_json: Members of an OpenAI request that are for the model (temperature, stop, n, …), one object.
        max_tokens: Most tokens of the answer; None: as many as fit.
        detectors: What the turn goes through.
        blocked_message: Stands for an answer that the detectors stopped.
        answers_blocked: It answers a question that the detectors stopped, too; else such a question is refused.
        session: The conversation that it belongs to, where that has a name.
        headers: Of the request's headers, in lower case, those that detectors may get.
        unary: The client gets nothing before the end of the answer.
        truncates: The oldest exchanges are left out where the model's window has no room for all of them; else a
            conversation that is too long is refused. Where the platform words the prompt they always are.
        searching: Lets the model search by itself, where it calls tools; None: the platform searches first.
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
    prompting: PromptOptions = PromptOptions()
    original: OriginalRequest = OriginalRequest()
    detection: DetectionOptions = DetectionOptions()

    @property
    def shown_model(self) -> str:
        """The name that the answer carries where the model server says none."""
        return self.answers_as or self.model

    @property
    def query(self) -> str:
        """What is searched for: the question; without one, what the user said since the latest answer. A message in
        which the model calls tools is no answer: it works on the same question still.
        """
        if self.question:
            return self.question
        said: list[str] = []
        for message in reversed(self.history):
            if message.role == "assistant" and not message.calls_tools:
                break
            if message.role == "user" and (words := message.words).strip():
                said.insert(0, words)
        return PART_BREAK.join(said)
