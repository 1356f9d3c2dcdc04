import asyncio
from collections.abc import Callable

from causeway_testing.generator import FakeModel, deployed
from causeway_testing.servers import eventually, measured, traced
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Usage
from generator.routing import metrics
from generator.routing.deployment import Deployment
from generator.routing.route import UNBOUNDED, Route
from opentelemetry.trace import SpanKind
from servicekit.errors import Unavailable

MakeRoute = Callable[..., Route]
PROMPT = Conversation((ChatMessage("user", "Hi"),))
EVENTS = [
    Event(EventKind.START),
    Event(EventKind.TEXT, text="Hello"),
    Event(EventKind.USAGE, usage=Usage(7, 3, exact=True)),
]


def metric_sum(name: str, deployment: str, **labels: str) -> float:
    """Return the sum of a metric of a deployment, or 0 without a value."""
    expected = {"causeway_deployment": deployment, **labels}
    return sum(value for found, value in measured(name) if expected.items() <= found.items())


async def test_an_answer_is_measured(route: MakeRoute) -> None:
    """An answer counts once in each metric, with its tokens by kind, under its model and deployment."""
    measured("")
    model_route = route(FakeModel("measured", EVENTS))
    assert [event async for event in model_route.generate(PROMPT)] == EVENTS
    name = model_route.targets[0].deployment.name
    for metric in (
        "client_operation_duration",
        "client_operation_time_to_first_chunk",
        "server_time_per_output_token",
    ):
        assert metric_sum(f"gen_ai_{metric}_seconds_count", name, gen_ai_request_model=model_route.name) == 1, (
            metric
        )
    tokens = "gen_ai_client_token_usage_sum"
    assert metric_sum(tokens, name, gen_ai_token_type="input") == 7
    assert metric_sum(tokens, name, gen_ai_token_type="output") == 3


async def test_a_failed_attempt_is_measured_with_its_error(route: MakeRoute) -> None:
    """Each attempt of each deployment is measured. A failed attempt has its error."""
    measured("")
    model_route = route(FakeModel("broken", [Unavailable("down")]), FakeModel("whole", EVENTS))
    assert [event async for event in model_route.generate(PROMPT)] == EVENTS
    broken, whole = (target.deployment.name for target in model_route.targets)
    duration = "gen_ai_client_operation_duration_seconds_count"
    assert metric_sum(duration, broken, error_type="Unavailable") == 1
    assert metric_sum(duration, whole) == 1
    assert metric_sum("gen_ai_client_operation_time_to_first_chunk_seconds_count", broken) == 0


async def test_circuits_and_load_are_measured(route: MakeRoute) -> None:
    """A scrape shows the state of the circuit, the running answers and the waiting requests of a deployment."""
    measured("")
    deployment: Deployment = deployed(FakeModel("watched"), slots=1, queue=1)
    metrics.watch(lambda: [deployment])

    def load() -> tuple[float, float]:
        name = deployment.name
        return metric_sum("causeway_deployment_busy", name), metric_sum("causeway_deployment_waiting", name)

    async def use_a_slot() -> None:
        async with deployment.attempt(UNBOUNDED):
            pass

    assert metric_sum("causeway_deployment_circuit", deployment.name) == 0
    async with deployment.attempt(UNBOUNDED):
        waiting = asyncio.create_task(use_a_slot())
        await eventually(lambda: deployment.slots.waiting == 1)
        assert load() == (1, 1)
    await waiting
    assert load() == (0, 0)
    while deployment.circuit.admits:
        deployment.circuit.call().failed()
    assert metric_sum("causeway_deployment_circuit", deployment.name) == 2


async def test_deployments_with_the_same_name_are_measured_together() -> None:
    """Two public models on the same model of a server: their loads are added, and an open circuit is visible."""
    measured("")
    broken, working = (deployed(FakeModel("shared"), failures=1) for _ in range(2))
    metrics.watch(lambda: [broken, working])
    async with broken.attempt(UNBOUNDED), working.attempt(UNBOUNDED):
        assert metric_sum("causeway_deployment_busy", "shared") == 2
    broken.circuit.call().failed()
    assert metric_sum("causeway_deployment_circuit", "shared") == 2


async def test_an_answer_has_a_span(route: MakeRoute) -> None:
    """The span has the attributes of the conventions for generative AI, and no text of the conversation."""
    traced("")
    prompt = Conversation(
        (ChatMessage("user", "Hush"),),
        parameters_json=b'{"temperature": 0.5, "max_tokens": 9, "user": "ada", "n": 1}',
    )
    events = [
        Event(EventKind.START, raw_json=b'{"id": "chatcmpl-1", "model": "stub-2024"}'),
        Event(EventKind.TEXT, text="Quiet"),
        Event(EventKind.FINISH, text="stop"),
        Event(EventKind.USAGE, usage=Usage(7, 3, exact=True)),
    ]
    model_route = route(FakeModel("spoken", events))
    assert [event async for event in model_route.generate(prompt)] == events
    span = traced("chat public")[-1]
    assert span.kind is SpanKind.CLIENT
    attributes = dict(span.attributes or {})
    assert attributes.pop("gen_ai.response.time_to_first_chunk") > 0  # type: ignore[operator]  # it is a number
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "tests",
        "gen_ai.request.model": "public",
        "causeway.deployment": model_route.targets[0].deployment.name,
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "stub-2024",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }


async def test_an_answer_in_one_piece_has_a_span(route: MakeRoute) -> None:
    """The span of a relayed request has the valid attributes of the request and the answer. Values of a wrong type
    are left out.
    """
    traced("")
    body = b'{"model": "public", "messages": [], "temperature": "hot", "max_completion_tokens": 5, "n": 2}'
    answer = b'{"id": 7, "model": "m", "choices": [{"finish_reason": "length"}, {"finish_reason": null}]}'
    model_route = route(FakeModel("whole", [Event(EventKind.COMPLETION, raw_json=answer)]))
    assert [event async for event in model_route.generate(OpenAIRequest(body))]
    attributes = dict(traced("chat public")[-1].attributes or {})
    recorded = {
        name: value for name, value in attributes.items() if name.startswith(("gen_ai.request", "gen_ai.resp"))
    }
    assert recorded == {
        "gen_ai.request.model": "public",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("length",),
    }
