from typing import Any

import grpc
import pytest
from causeway.guardrails.v1 import guardrails_pb2
from grpc.aio import AioRpcError, Metadata
from hypothesis import given
from hypothesis import strategies as st
from servicekit import errors, rpc, rpc_errors
from servicekit.channel import MAX_MESSAGE_BYTES, SIZE_OPTIONS
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Internal, NotFound, PayloadTooLarge, Unavailable, UpstreamRejected
from structlog.testing import capture_logs

ASK = guardrails_pb2.DetectTextRequest()


async def _round_trip(served: Any, raised: CausewayError) -> CausewayError:
    async def handler(request: Any, context: Any) -> Any:
        raise raised

    method = await served.unary(handler)
    with pytest.raises(CausewayError) as caught:
        await rpc.unary(method, ASK, Deadline.after(120))
    return caught.value


def _sample(kind: type[CausewayError]) -> CausewayError:
    if kind is Internal:
        return Internal()
    if kind is UpstreamRejected:
        return UpstreamRejected("refused: zu groß", status=429, body='{"détail": "x"}', retry_after=2)
    facts: dict[str, Any] = {"field": "messages[0].rôle", "resource": "Bücher/1", "retry_after": 1234567.25}
    return kind("Das geht nicht: 漢字, 100 % \n\ttrue", **facts, details={"limit": "10", "unité": "Mio"})


@pytest.mark.parametrize("kind", [row.error for row in errors.TABLE], ids=lambda kind: kind.__name__)
async def test_every_class_crosses_as_itself(served: Any, kind: type[CausewayError]) -> None:
    """Over a real server, each class arrives with its message, field, resource, retry time and details."""
    sent = _sample(kind)
    got = await _round_trip(served, sent)
    assert type(got) is kind
    assert vars(got) == vars(sent)


@pytest.mark.parametrize("character", ["x", "ä", "漢", "🌊", "\n", "%"])
async def test_long_errors_arrive_bounded(served: Any, character: str) -> None:
    """An error of any size and characters arrives with its own class, truncated."""
    long = character * 50_000
    got = await _round_trip(
        served, NotFound(long, field=long, resource=long, details={f"{n}{character * 99}": long for n in range(99)})
    )
    assert type(got) is NotFound
    assert long.startswith(got.message)
    assert rpc_errors.MAX_ERROR_MESSAGE_BYTES - 4 < len(got.message.encode()) <= rpc_errors.MAX_ERROR_MESSAGE_BYTES
    assert got.field is not None
    assert rpc_errors.MAX_FACT_BYTES - 4 < len(got.field.encode()) <= rpc_errors.MAX_FACT_BYTES
    assert got.resource


async def test_a_long_answer_of_a_model_server_arrives_bounded(served: Any) -> None:
    """A model server's long error page arrives truncated, with its status."""
    got = await _round_trip(served, UpstreamRejected("refused", status=503, body="ß" * 100_000))
    assert isinstance(got, UpstreamRejected)
    assert got.status == 503
    assert got.body == "ß" * (rpc_errors.MAX_FACT_BYTES // 2)


async def test_text_without_utf8_is_sent(served: Any) -> None:
    """An error with half a surrogate pair, which JSON can contain, arrives with ``?`` in its place."""
    got = await _round_trip(served, NotFound("no '\ud800'", resource="\udfff"))
    assert (type(got), got.message, got.resource) == (NotFound, "no '?'", "?")


def test_the_bound_fits_the_metadata() -> None:
    """The largest error fits into the channel's limit for metadata, even if gRPC percent-encodes its message."""
    long = "漢" * 10_000
    _, plain, ((_, status),) = rpc_errors.pack(NotFound(long, field=long, details={"a": long, "b": long}))
    limit = dict(SIZE_OPTIONS)["grpc.max_metadata_size"]
    assert 3 * len(plain.encode()) + len(status) < limit


@given(st.text(), st.integers(0, 40))
def test_truncate_cuts_whole_characters(text: str, max_bytes: int) -> None:
    """A truncated text is the longest beginning of the text within the limit of bytes."""
    cut = rpc_errors.truncate(text, max_bytes)
    assert text.startswith(cut)
    assert len(cut.encode()) <= max_bytes
    assert cut == text or len(text[: len(cut) + 1].encode()) > max_bytes


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
async def test_plain_codes_become_classes(served: Any, code: grpc.StatusCode) -> None:
    """A status without the platform's details, from gRPC or a proxy, becomes the class with the same meaning."""

    async def handler(request: Any, context: Any) -> Any:
        await context.abort(code, "tcp 10.1.2.3 broke")

    method = await served.unary(handler)
    with pytest.raises(CausewayError) as caught:
        await rpc.unary(method, ASK, Deadline.after(120))
    known = errors.row_of(caught.value).code
    same = {
        grpc.StatusCode.OUT_OF_RANGE: grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.ALREADY_EXISTS: grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED: grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.CANCELLED: grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED: grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS: grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN: grpc.StatusCode.INTERNAL,
    }
    assert known is same.get(code, code)
    assert "10.1.2.3" not in caught.value.message


async def test_the_caller_logs_errors_of_grpc(served: Any) -> None:
    """The caller logs an error of gRPC itself, because no service logs it. The client gets no details."""

    async def handler(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNKNOWN, "no HTTP/2 at 10.1.2.3")

    method = await served.unary(handler)
    with capture_logs() as logs, pytest.raises(Internal) as caught:
        await rpc.unary(method, ASK, Deadline.after(120))
    [line] = [entry for entry in logs if entry["event"] == "a call failed within gRPC"]
    assert (line["code"], line["error"]) == ("UNKNOWN", "no HTTP/2 at 10.1.2.3")
    assert caught.value.message == Internal.MESSAGE


async def test_a_request_that_never_fits_is_too_large(served: Any) -> None:
    """A message above the channel's limit is the caller's error and not an outage of the service."""

    async def handler(request: Any, context: Any) -> Any:
        return guardrails_pb2.DetectTextResponse()

    method = await served.unary(handler)
    with pytest.raises(PayloadTooLarge):
        await rpc.unary(
            method, guardrails_pb2.DetectTextRequest(texts=["x" * MAX_MESSAGE_BYTES]), Deadline.after(120)
        )


async def test_an_answer_that_never_fits_is_a_defect(served: Any) -> None:
    """An answer above the limit is a defect of the service."""

    async def handler(request: Any, context: Any) -> Any:
        return guardrails_pb2.DetectTextResponse(
            verdicts=[guardrails_pb2.Verdict(redacted_text="x" * MAX_MESSAGE_BYTES)]
        )

    method = await served.unary(handler)
    with pytest.raises(Internal):
        await rpc.unary(method, ASK, Deadline.after(120))


@pytest.mark.parametrize("details", [b"\xff\xff\xff", b"", b"\x1a\x02\x0a\x00"])
def test_details_that_are_not_ours_are_passed_over(details: bytes) -> None:
    """Foreign or damaged details are ignored, and the code decides the class."""
    error = AioRpcError(
        grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(("grpc-status-details-bin", details)), "gone"
    )
    assert type(rpc_errors.unpack(error)) is Unavailable
