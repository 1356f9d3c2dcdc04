from collections.abc import Callable

import pytest
from generator.domain import ChatMessage, Conversation, Event, EventKind, Usage
from generator.fakes import FakeModel, deployed
from generator.routing import measuring
from generator.routing.deployment import Deployment
from generator.routing.route import UNBOUNDED, Route
from servicekit.errors import CausewayError, Unavailable
from servicekit.testing import measured

MakeRoute = Callable[..., Route]
PROMPT = Conversation((ChatMessage("user", "Hi"),))
EVENTS = [
    Event(EventKind.START),
    Event(EventKind.TEXT, text="Hello"),
    Event(EventKind.USAGE, usage=Usage(7, 3, exact=True)),
]


def seen(name: str, deployment: str, **labels: str) -> float:
    """The value of a metric of a deployment; 0 where there is none."""
    wanted = {"causeway_deployment": deployment, **labels}
    return sum(value for found, value in measured(name) if wanted.items() <= found.items())


async def test_an_answer_is_measured(route: MakeRoute) -> None:
    """Once as a whole, its beginning, its tokens by kind, the time between them; under model and deployment."""
    measured("")
    made = route(FakeModel("measured", EVENTS))
    assert [event async for event in made.generate(PROMPT)] == EVENTS
    name = made.targets[0].deployment.name
    for metric in ("client_operation_duration", "server_time_to_first_token", "server_time_per_output_token"):
        assert seen(f"gen_ai_{metric}_seconds_count", name, gen_ai_request_model=made.name) == 1, metric
    tokens = "gen_ai_client_token_usage_sum"
    assert seen(tokens, name, gen_ai_token_type="input") == 7
    assert seen(tokens, name, gen_ai_token_type="output") == 3


async def test_what_failed_is_measured_by_its_error(route: MakeRoute) -> None:
    """Each try of each deployment, also those that another one stepped in for."""
    measured("")
    made = route(FakeModel("broken", [Unavailable("down")]), FakeModel("whole", EVENTS))
    assert [event async for event in made.generate(PROMPT)] == EVENTS
    broken, whole = (target.deployment.name for target in made.targets)
    duration = "gen_ai_client_operation_duration_seconds_count"
    assert seen(duration, broken, error_type="Unavailable") == 1
    assert seen(duration, whole) == 1
    assert seen("gen_ai_server_time_to_first_token_seconds_count", broken) == 0


async def test_circuits_and_load_are_seen(route: MakeRoute) -> None:
    """A scrape shows which deployments are let alone, and how many answers and waiting requests each has."""
    measured("")
    deployment: Deployment = deployed(FakeModel("watched", [Unavailable("down")]))
    measuring.watch(lambda: [deployment])
    assert seen("causeway_deployment_circuit", deployment.name) == 0
    for _ in range(10):
        call = deployment.circuit.call() if deployment.circuit.admits else None
        if call is not None:
            call.failed()
    assert seen("causeway_deployment_circuit", deployment.name) == 2
    with pytest.raises(CausewayError):
        async with deployment.visit(UNBOUNDED):
            raise AssertionError
    assert seen("causeway_deployment_busy", deployment.name) == 0
    assert seen("causeway_deployment_waiting", deployment.name) == 0
