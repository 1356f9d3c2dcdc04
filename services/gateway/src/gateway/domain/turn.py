"""What is asked."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from gateway.domain.detection import Chunking, DetectorKind, Detectors, InputScope
from gateway.texts import Equals


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant``, ``developer`` or ``tool``.
        text: Its text; empty where the content is a list of parts.
        content_json: The list of parts as it came, else empty.
        extra_json: Its other members as one JSON object, else empty.
    """

    role: str
    text: str
    content_json: bytes = b""
    extra_json: bytes = b""


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
    """Where the passages stand in the prompt."""

    SOURCES_AFTER_QUESTION = enum.auto()
    CONTEXT_IN_SYSTEM_MESSAGE = enum.auto()


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked: everything the pipeline needs, nothing of how it was said.

    Attributes:
        history: What was said before, oldest first, system messages included; and what belongs to the question (the
            files that came with it), behind the latest answer.
        question: The user's words since the last answer; also the search query. Empty where the last word is not
            the user's (a tool's result); such a turn searches nothing.
        only_default_model: ``model``, where it is named, must be the generator's default one.
        parameters_json: Members of an OpenAI request that are for the model (temperature, stop, n, …), one object.
        original_json: The OpenAI request that it came as, less our own keys; empty in other dialects.
        original_messages: Its messages, where the question was put together from several.
        places: Where in the request the messages stand: those of the history, then those that the question was put
            together from; empty: in this order.
        frontend: The profile that it belongs to.
        rewrite: The search query is made from the question and the history, by the model.
        follow_ups: The model is asked for questions that the user may ask next.
        language: The answer's, as a language tag or a name; empty: the question's.
        pictures: The model is to get pictures of the pages beside their text.
        pictures_only: Instead of their text, where there are pictures of them.
        blocked_message: Stands for an answer that the detectors stopped.
        answers_blocked: It answers a question that the detectors stopped, too; else such a question is refused.
        passthrough: ``original_json`` goes to the model as it is, and the rest does not matter.
        question_extra_json: Other members of the message that the question came in, as of `Message`.
        required_indexes: Named by the request and not searched for it; an unknown one is refused all the same.
        plain: The one message is a text to go on with, and the parameters are those of a text completion.
        detector_kinds: Detectors that the request names, and what each may look at where it is named; looked at
            before anything else happens.
        input_scope: Which messages the input detectors judge.
        blocked_is_empty: A question that the detectors stopped is answered by no choices, and its number of tokens.
        objection: What is wrong with the request; raised once the ``required_indexes`` are known to exist, because
            clients are told of an unknown index first.
        headers: Of the request's headers, in lower case, those that detectors may get.
        chunking: How the answer is cut where detectors judge it; None: anywhere, and text waits only for those that
            protect it.
    """

    principal: Principal
    question: str
    history: tuple[Message, ...] = ()
    model: str = ""
    only_default_model: bool = False
    retrieval: Retrieval = Retrieval()
    style: PromptStyle = PromptStyle.SOURCES_AFTER_QUESTION
    system_prompt: str | None = None
    parameters_json: bytes = b"{}"
    max_tokens: int | None = None
    detectors: Detectors = field(default_factory=Detectors)
    original_json: bytes = b""
    frontend: str = "default"
    rewrite: bool = False
    follow_ups: bool = False
    language: str = ""
    pictures: bool = False
    pictures_only: bool = False
    blocked_message: str = ""
    answers_blocked: bool = False
    passthrough: bool = False
    original_messages: tuple[Message, ...] = ()
    places: tuple[int, ...] = ()
    question_extra_json: bytes = b""
    required_indexes: tuple[str, ...] = ()
    plain: bool = False
    detector_kinds: tuple[tuple[str, frozenset[DetectorKind]], ...] = ()
    input_scope: InputScope = InputScope.CONVERSATION
    blocked_is_empty: bool = False
    objection: InvalidRequest | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    chunking: Chunking | None = None
