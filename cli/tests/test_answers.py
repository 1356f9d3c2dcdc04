import pytest
from causeway.cli.answers import Answer, Citation, Job, Readiness, Step, error_message, server_timing


def test_citations_are_the_named_sources() -> None:
    """Citations are the brackets that name a source, in order and each once."""
    answer = Answer("A [b.md#page=2][a.pdf#page=1] and [sic] again [b.md#page=2].", ["a.pdf#page=1", "b.md#page=2"])
    assert answer.citations == [
        Citation("b.md#page=2", "b.md", "2"),
        Citation("a.pdf#page=1", "a.pdf", "1"),
    ]


def test_citations_without_known_sources() -> None:
    """Without a list of sources every bracket is a citation."""
    assert Answer("As [a.md] says.").citations == [Citation("a.md", "a.md", "")]


def test_later_lines_complete_the_context() -> None:
    """Later thoughts replace earlier ones, sources stay, and a thought without a duration is no step."""
    answer = Answer()
    thoughts = [{"title": "Results", "props": {"duration_ms": 2}}, {"title": "Prompt", "props": None}]
    answer.add_context({"context": {"data_points": {"citations": ["a"]}, "thoughts": []}})
    answer.add_context({"context": {"thoughts": thoughts}})
    answer.add_context({"delta": {"content": "x"}})
    assert answer.sources == ["a"]
    assert answer.steps == [Step("Results", 2.0)]


@pytest.mark.parametrize(
    ("header", "steps"),
    [
        ("", []),
        ("retrieve;dur=4.5, generate;dur=9", [Step("retrieve", 4.5), Step("generate", 9)]),
        ('r;desc="First search";dur=1', [Step("First search", 1)]),
        ("cache, miss;dur=soon, total;dur=3", [Step("total", 3)]),
    ],
)
def test_server_timing(header: str, steps: list[Step]) -> None:
    """Steps are the metrics with a duration, by description or else by name."""
    assert server_timing(header) == steps


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"detail": "no"}, "no"),
        ({"error": "no"}, "no"),
        ({"error": {"message": "no", "type": "t"}}, "no"),
        ({"error": {"message": "no"}, "detail": "no"}, "no"),
        ({"detail": [{"loc": ["body", "index"], "msg": "Field required"}]}, "body.index: Field required"),
        ({"error": {}}, ""),
        ({"error": 3}, ""),
        ([], ""),
        ("text", ""),
    ],
)
def test_error_message(body: object, message: str) -> None:
    """The message is found in every form of an error, and is empty for any other form."""
    assert error_message(body) == message


def test_a_job_of_the_wire() -> None:
    """A job may have no progress and no error."""
    job = Job.of({"id": "1", "state": "queued", "progress": None, "error": None})
    assert (job.final, job.ok, job.percent, job.stage) == (False, False, 0, "queued")
    error = {"reason": "UNREADABLE_DOCUMENT", "message": "It is encrypted."}
    failed = Job.of({"id": "1", "state": "failed", "error": error})
    assert (failed.final, failed.ok, failed.reason, failed.message) == (True, False, *error.values())


def test_readiness_of_the_wire() -> None:
    """Each service has its state, and may have no detail and no latency."""
    body = {"services": {"retriever": {"status": "ok", "latency_ms": 1.5}, "nats": {"status": "unavailable"}}}
    readiness = Readiness.of(False, body)
    assert [(s.name, s.status, s.detail, s.latency_ms) for s in readiness.services] == [
        ("retriever", "ok", "", 1.5),
        ("nats", "unavailable", "", None),
    ]
