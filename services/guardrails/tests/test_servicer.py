"""guardrails.servicer: the contract over a real gRPC server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias, cast

import aiohttp
import grpc
import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from causeway.identity.v1 import principal_pb2
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.guardrails.remote import DetectorStub, detector_server
from causeway_testing.servers import eventually, grpc_service
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import Action, DetectorKind, DetectorSpec
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from embedding.port import Embedder
from grpc.aio import EOF, AioRpcError
from guardrails.detectors.groundedness.detector import groundedness
from guardrails.ragengine_policy import Policy
from guardrails.remote.config import RemoteConfig
from guardrails.remote.detector import RemoteFactory
from guardrails.servicer import GuardrailsServicer
from servicekit.errors import CausewayError, InvalidRequest, NotFound, PayloadTooLarge, Unauthenticated
from servicekit.rpc_errors import unpack
from yarl import URL

Stub: TypeAlias = "guardrails_pb2_grpc.GuardrailsServiceAsyncStub"  # in the stubs' types only
_PRINCIPAL = principal_pb2.Principal(tenant="t", user="u")
_MAX_TEXT_LENGTH = 100_000

_REMOTE: list[RemoteFactory] = []


async def _open() -> Embedder:
    return HashingEmbedder()


@pytest.fixture
async def detector() -> AsyncIterator[DetectorStub]:
    """Serve a remote detector `hap` that finds secrets."""
    async with detector_server(DetectorStub()) as stub, aiohttp.ClientSession() as session:
        config = RemoteConfig("hap", DetectorKind.CONTENTS, URL(stub.url), headers=frozenset(["x-tenant"]))
        _REMOTE.append(RemoteFactory(config, session))
        yield stub


@pytest.fixture
def servicer() -> Iterator[GuardrailsServicer]:
    """Yield the servicer."""
    limits = Limits(held_back=1000)
    workers = ThreadPool(1)
    catalogue = Catalogue([regex(limits), ban_substrings(limits), groundedness(_open, 10)], lambda: _REMOTE)
    policy = Policy((DetectorSpec("regex", Action.BLOCK, params=b'{"regex":["email"]}'),), "Not this.")
    yield GuardrailsServicer(catalogue, workers, JudgingLimits(_MAX_TEXT_LENGTH), policy=lambda: policy)
    workers.close()
    _REMOTE.clear()


@pytest.fixture
async def stub(servicer: GuardrailsServicer) -> AsyncIterator[Stub]:
    """Yield a client of the service on a real server."""
    descriptor = pb.DESCRIPTOR.services_by_name["GuardrailsService"]
    async with grpc_service(
        descriptor, lambda server: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, server)
    ) as channel:
        yield guardrails_pb2_grpc.GuardrailsServiceStub(channel)


def _regex(
    *patterns: str,
    action: pb.Action.ValueType = pb.ACTION_REDACT,
    on_error: pb.OnError.ValueType = pb.ON_ERROR_UNSPECIFIED,
) -> pb.DetectorConfig:
    params = json.dumps({"regex": patterns}).encode()
    return pb.DetectorConfig(detector_id="regex", action=action, on_error=on_error, params_json=params)


def _config(*detectors: pb.DetectorConfig) -> pb.DetectRequest:
    config = pb.DetectConfig(principal=_PRINCIPAL, direction=pb.DIRECTION_OUTPUT, detectors=detectors)
    return pb.DetectRequest(config=config)


def _piece(text: str, choice: int = 0, last: bool = False) -> pb.DetectRequest:
    return pb.DetectRequest(piece=pb.DetectPiece(choice=choice, text=text, last=last))


def _text_request(*detectors: pb.DetectorConfig, texts: list[str]) -> pb.DetectTextRequest:
    return pb.DetectTextRequest(principal=_PRINCIPAL, detectors=detectors, texts=texts)


async def test_each_text_has_a_verdict(stub: Stub) -> None:
    """Each text has its verdict, with findings in code points and the redacted text."""
    request = _text_request(_regex("email"), texts=["clean", "🔑 a@b.co!"])
    response = await stub.DetectText(request)
    clean, found = response.verdicts
    assert clean == pb.Verdict()
    assert (found.action, found.redacted_text) == (pb.ACTION_REDACT, "🔑 [REDACTED]!")
    assert list(found.findings) == [
        pb.Finding(
            start=2,
            end=8,
            text="a@b.co",
            detection_type="pii",
            detection="email_address",
            detector_id="regex",
            score=1.0,
            action=pb.ACTION_REDACT,
            replacement="[REDACTED]",
        )
    ]
    assert not response.failures


async def test_a_detector_without_an_action_reports(stub: Stub) -> None:
    """A detector without an action reports. The verdict has the strictest action."""
    request = _text_request(
        _regex("a", action=pb.ACTION_UNSPECIFIED), _regex("b", action=pb.ACTION_BLOCK), texts=["a", "ab"]
    )
    response = await stub.DetectText(request)
    assert [verdict.action for verdict in response.verdicts] == [pb.ACTION_REPORT, pb.ACTION_BLOCK]


async def test_a_long_text_has_the_same_verdict_as_a_short_one(stub: Stub) -> None:
    """A long text has the same verdict as a short one."""
    text = "clean words, " * 7000 + "a@b.co"
    response = await stub.DetectText(_text_request(_regex("email"), texts=[text]))
    assert response.verdicts[0].redacted_text == "clean words, " * 7000 + "[REDACTED]"


async def test_a_failing_detector_blocks_unless_failures_are_allowed(stub: Stub) -> None:
    """A failing detector blocks the text, or is skipped if that is allowed. The answer names the detector."""
    text = "a" * 20_000
    for on_error, action in ((pb.ON_ERROR_BLOCK, pb.ACTION_BLOCK), (pb.ON_ERROR_ALLOW, pb.ACTION_UNSPECIFIED)):
        response = await stub.DetectText(_text_request(_regex("a", on_error=on_error), texts=[text]))
        assert response.verdicts[0].action == action
        assert [failure.detector_id for failure in response.failures] == ["regex"]


async def _refused(call: object) -> CausewayError:
    with pytest.raises(AioRpcError) as raised:
        await call  # type: ignore[misc]  # any call
    return unpack(raised.value)


async def test_a_bad_text_request_is_refused(stub: Stub) -> None:
    """A bad request gets a status and a message that names the wrong part."""
    error = await _refused(stub.DetectText(_text_request(pb.DetectorConfig(detector_id="x"), texts=["a"])))
    assert isinstance(error, NotFound)
    assert error.message == "detector `x` not found"
    error = await _refused(stub.DetectText(_text_request(_regex("email", "("), texts=["a"])))
    assert isinstance(error, InvalidRequest)
    assert error.field == "detectors[0].params.regex[1]"
    error = await _refused(stub.DetectText(_text_request(texts=["a"])))
    assert error.field == "detectors"
    error = await _refused(stub.DetectText(_text_request(_regex("a", action=9), texts=["a"])))  # type: ignore[arg-type]  # on purpose
    assert error.field == "detectors[0].action"
    error = await _refused(stub.DetectText(_text_request(_regex("a", on_error=9), texts=["a"])))  # type: ignore[arg-type]  # on purpose
    assert error.field == "detectors[0].on_error"
    unknown = _text_request(_regex("a"), texts=["a"])
    unknown.direction = 9  # type: ignore[assignment]  # on purpose
    assert (await _refused(stub.DetectText(unknown))).field == "direction"
    error = await _refused(stub.DetectText(_text_request(_regex("a"), texts=["a" * 60_000, "b" * 60_000])))
    assert isinstance(error, PayloadTooLarge)
    assert error.field == "texts"
    error = await _refused(stub.DetectText(pb.DetectTextRequest(detectors=[_regex("a")], texts=["a"])))
    assert isinstance(error, Unauthenticated)
    assert isinstance(await _refused(stub.ListDetectors(pb.ListDetectorsRequest())), Unauthenticated)


async def _detect(stub: Stub, *requests: pb.DetectRequest) -> list[pb.DetectResponse]:
    return [response async for response in stub.Detect(iter(requests))]


async def test_each_piece_has_a_response(stub: Stub) -> None:
    """Each piece has a response with the cleared position before the client sends the next piece."""
    call = stub.Detect()
    await call.write(_config(_regex("email")))
    await call.write(_piece("Hi "))
    assert await call.read() == pb.DetectResponse(cleared_until=3)
    await call.write(_piece("a@b"))
    await call.write(_piece("、", choice=1))
    assert await call.read() == pb.DetectResponse(choice=1, cleared_until=1)
    await call.write(_piece(".co, "))
    response = await call.read()
    assert isinstance(response, pb.DetectResponse)
    assert (response.cleared_until, response.action) == (11, pb.ACTION_REDACT)
    assert [(finding.start, finding.end, finding.replacement) for finding in response.findings] == [
        (3, 9, "[REDACTED]")
    ]
    await call.write(_piece("end", last=True))
    assert await call.read() == pb.DetectResponse(cleared_until=14, judged=True)
    await call.done_writing()
    assert await call.read() is EOF


async def test_a_block_ends_the_stream(stub: Stub) -> None:
    """After a block the server sends nothing more, even if the client has not ended."""
    call = stub.Detect()
    await call.write(_config(_regex("abc", action=pb.ACTION_BLOCK)))
    await call.write(_piece("xab"))
    assert await call.read() == pb.DetectResponse(cleared_until=1)
    await call.write(_piece("c"))
    response = await call.read()
    assert isinstance(response, pb.DetectResponse)
    assert (response.action, response.cleared_until, len(response.findings)) == (pb.ACTION_BLOCK, 1, 1)
    assert await call.read() is EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_many_pieces_at_once_are_cleared_in_order(stub: Stub) -> None:
    """Many pieces that arrive at once are all cleared, in order."""
    pieces = [_piece("some words ") for _ in range(500)]
    responses = await _detect(stub, _config(_regex("email")), *pieces, _piece("", last=True))
    cleared = [response.cleared_until for response in responses]
    assert cleared == sorted(cleared)
    assert cleared[-1] == 500 * 11


async def test_waiting_pieces_are_answered_together(servicer: GuardrailsServicer) -> None:
    """Pieces that wait while a response is sent have one response together."""

    async def requests() -> AsyncIterator[pb.DetectRequest]:
        yield _config(_regex("email"))
        for _ in range(100):
            yield _piece("some words ")
        yield _piece("", last=True)

    context = cast("grpc.aio.ServicerContext[Any, Any]", None)  # not used
    responses = [response async for response in servicer.Detect(requests(), context)]
    assert responses[-1] == pb.DetectResponse(cleared_until=1100, judged=True)
    assert len(responses) < 5


async def test_a_bad_stream_is_refused(stub: Stub) -> None:
    """A stream must be one config and then pieces. Anything else is refused, and so are long or late pieces."""
    config = _config(_regex("abc"))
    for requests, field in (
        ([], "config"),
        ([_piece("a")], "config"),
        ([_config()], "detectors"),
        ([config, config], "piece"),
        ([config, pb.DetectRequest()], "piece"),
        ([config, _piece("a" * (_MAX_TEXT_LENGTH + 1))], "piece.text"),
        ([config, _piece("a", last=True), _piece("b")], "piece.choice"),
    ):
        with pytest.raises(AioRpcError) as raised:
            await _detect(stub, *requests)
        error = unpack(raised.value)
        assert isinstance(error, InvalidRequest)
        assert error.field == field
    with pytest.raises(AioRpcError) as raised:
        await _detect(stub, pb.DetectRequest(config=pb.DetectConfig(detectors=[_regex("a")])))
    assert isinstance(unpack(raised.value), Unauthenticated)


async def test_a_client_that_cancels_ends_the_work_for_its_stream(stub: Stub) -> None:
    """When the client cancels, all work for its stream ends in the server."""
    before = len(asyncio.all_tasks())
    call = stub.Detect()
    await call.write(_config(_regex("abc")))
    await call.write(_piece("x"))
    await call.read()
    assert len(asyncio.all_tasks()) > before
    call.cancel()
    await eventually(lambda: len(asyncio.all_tasks()) <= before, what="the end of the stream's tasks")


async def test_the_held_text_of_an_incomplete_choice_is_never_cleared(stub: Stub) -> None:
    """If a choice is never completed, its held text is never cleared."""
    (response,) = await _detect(stub, _config(_regex("abc")), _piece("xab"))
    assert response.cleared_until == 1


async def test_detectors_are_listed_by_id(stub: Stub) -> None:
    """The detectors are listed by id, each with the schema of its parameters."""
    response = await stub.ListDetectors(pb.ListDetectorsRequest(principal=_PRINCIPAL))
    assert [detector.detector_id for detector in response.detectors] == ["ban_substrings", "groundedness", "regex"]
    for detector in response.detectors:
        assert detector.streaming
        assert json.loads(detector.params_schema_json)


async def test_the_list_omits_the_health_on_request(stub: Stub, detector: DetectorStub) -> None:
    """On request, the list omits the health."""
    detector.status = 503
    request = pb.ListDetectorsRequest(principal=_PRINCIPAL, without_health=True)
    listed = (await stub.ListDetectors(request)).detectors
    assert {detector.health for detector in listed} == {pb.DETECTOR_HEALTH_UNSPECIFIED}
    assert all(detector.params_schema_json and detector.kinds for detector in listed)


def _hap(action: pb.Action.ValueType = pb.ACTION_REDACT) -> pb.DetectorConfig:
    return pb.DetectorConfig(detector_id="hap", action=action)


async def test_a_remote_detector_judges_sentences_of_a_stream(stub: Stub, detector: DetectorStub) -> None:
    """Remote and built-in detectors judge a growing text together. The remote detector gets the allowed headers."""
    around = pb.Surroundings(headers={"x-tenant": "t", "cookie": "c"})
    config = pb.DetectConfig(principal=_PRINCIPAL, detectors=[_hap(), _regex("email")], surroundings=around)
    pieces = [_piece("A sec"), _piece("ret. Mail a@b.co no"), _piece("w", last=True)]
    responses = await _detect(stub, pb.DetectRequest(config=config), *pieces)
    found = [
        (finding.start, finding.end, finding.detector_id) for response in responses for finding in response.findings
    ]
    assert found == [(2, 8, "hap"), (15, 21, "regex")]
    assert responses[-1].cleared_until == 25
    assert detector.requests[0].headers["x-tenant"] == "t"
    assert "cookie" not in detector.requests[0].headers


async def test_the_failure_of_a_remote_detector_blocks(stub: Stub, detector: DetectorStub) -> None:
    """The failure of a remote detector blocks, and is reported with its server's status."""
    detector.status = 429
    response = await stub.DetectText(_text_request(_hap(pb.ACTION_REPORT), texts=["x"]))
    assert response.verdicts[0].action == pb.ACTION_BLOCK
    (failure,) = response.failures
    assert (failure.status, failure.message) == (429, "detector request failed for `hap`: a scripted failure")


async def test_a_client_that_cancels_stops_the_remote_detector(stub: Stub, detector: DetectorStub) -> None:
    """A client that cancels its call also cancels the request to the remote server."""
    detector.gate.clear()
    call = stub.Detect()
    await call.write(_config(_hap()))
    await call.write(_piece("One. T"))
    await eventually(lambda: detector.running == 1)
    call.cancel()
    await eventually(lambda: detector.cancelled == 1)


async def test_text_is_released_by_sentences_on_request(stub: Stub) -> None:
    """On request, each response releases one sentence."""
    config = pb.DetectConfig(principal=_PRINCIPAL, detectors=[_regex("email")], chunking=pb.CHUNKING_SENTENCE)
    pieces = [_piece("One. Two. Thr"), _piece("ee", last=True)]
    responses = await _detect(stub, pb.DetectRequest(config=config), *pieces)
    assert [response.cleared_until for response in responses] == [4, 9, 15]


async def test_comparing_detectors_get_the_passages(stub: Stub) -> None:
    """Detectors that compare texts with passages get the passages."""
    request = _text_request(pb.DetectorConfig(detector_id="groundedness"), texts=["Elephants eat grass daily."])
    request.passages.append("The pump is green.")
    response = await stub.DetectText(request)
    assert [finding.detection for finding in response.verdicts[0].findings] == ["ungrounded"]


async def test_invalid_surroundings_are_refused(stub: Stub) -> None:
    """A value that is not JSON of the right kind is refused by its name."""
    for around, field in (
        (pb.Surroundings(messages_json=b"{}"), "surroundings.messages_json"),
        (pb.Surroundings(tools_json=b"["), "surroundings.tools_json"),
    ):
        request = _text_request(_regex("a"), texts=["a"])
        request.surroundings.CopyFrom(around)
        assert (await _refused(stub.DetectText(request))).field == field
    request = _text_request(_regex("a"), texts=["a"])
    request.replies_json.append(b"[]")
    assert (await _refused(stub.DetectText(request))).field == "replies_json[0]"


async def test_the_list_has_the_kind_and_the_health(stub: Stub, detector: DetectorStub) -> None:
    """The list names each detector's kind of input and its health."""
    detector.status = 503
    listed = await stub.ListDetectors(pb.ListDetectorsRequest(principal=_PRINCIPAL))
    by_id = {detector.detector_id: detector for detector in listed.detectors}
    assert list(by_id["groundedness"].kinds) == [pb.DETECTOR_KIND_TEXT_CONTEXT_DOC]
    assert by_id["regex"].health == pb.DETECTOR_HEALTH_HEALTHY
    hap = by_id["hap"]
    assert (hap.health, hap.health_reason, hap.remote) == (
        pb.DETECTOR_HEALTH_UNHEALTHY,
        "its server answered with status 503",
        True,
    )


async def test_get_policy_returns_the_policy_of_the_file(stub: Stub) -> None:
    """`GetPolicy` returns the detectors of the policy file and the message for blocked answers."""
    policy = await stub.GetPolicy(pb.GetPolicyRequest(principal=_PRINCIPAL))
    assert policy.block_message == "Not this."
    (requested,) = policy.output
    assert (requested.detector_id, requested.action) == ("regex", pb.ACTION_BLOCK)
    response = await stub.DetectText(_text_request(*policy.output, texts=["a@b.co"]))
    assert response.verdicts[0].action == pb.ACTION_BLOCK
