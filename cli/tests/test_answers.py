import pytest
from causeway.cli.answers import Answer, Citation, Job, Readiness, Step, error_message, server_timing


def test_citations_are_the_named_sources() -> None:
    """Citations are the bracketed names of sources, in order and without duplicates."""
    answer = Answer("A [b.md#page=2][a.pdf#page=1] and [sic] again [b.md#page=2].", ["a.pdf#page=1", "b.md#page=2"])
    assert answer.citations == [
        Citation("b.md#page=2", "b.md", "2"),
        Citation("a.pdf#page=1", "a.pdf", "1"),
    ]


def test_citations_without_known_sources() -> None:
    """If the sources are unknown, every bracketed text is a citation."""
    assert Answer("As [a.md] says.").citations == [Citation("a.md", "a.md", "")]


def test_later_lines_complete_the_context() -> None:
    """Later thoughts replace earlier thoughts. The sources remain. A thought without a duration is not a step."""
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
    """Each metric with a duration is a step. Its title is the description, or the name if it has no description."""
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
    """The function finds the message in each format of an error body. For other bodies, the text is empty."""
    assert error_message(body) == message


def test_a_job_is_parsed() -> None:
    """A job may have no progress and no error."""
    job = Job.of({"id": "1", "state": "queued", "progress": None, "error": None})
    assert (job.has_ended, job.percent, job.stage) == (False, 0, "queued")
    error = {"reason": "UNREADABLE_DOCUMENT", "message": "It is encrypted."}
    failed = Job.of({"id": "1", "state": "failed", "error": error})
    assert (failed.has_ended, failed.reason, failed.message) == (True, *error.values())


def test_readiness_is_parsed() -> None:
    """Each service has a state. The detail and the latency are optional."""
    body = {"services": {"retriever": {"status": "ok", "latency_ms": 1.5}, "nats": {"status": "unavailable"}}}
    readiness = Readiness.of(False, body)
    assert [(s.name, s.status, s.detail, s.latency_ms) for s in readiness.services] == [
        ("retriever", "ok", "", 1.5),
        ("nats", "unavailable", "", None),
    ]
