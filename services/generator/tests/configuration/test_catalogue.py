"""The catalogue of models while the configuration changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from causeway_testing.model_answers import FAULTS, stream
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import eventually
from generator.configuration.adapters import Defaults
from generator.configuration.catalogue import RoutedModels
from generator.configuration.models_file import Reader
from generator.domain import ChatMessage, Conversation
from generator.routing.circuit_breaker import State
from generator.routing.deployment import Deployment
from servicekit.errors import CausewayError, NotFound

PROMPT = Conversation((ChatMessage("user", "Hi"),))


class Served:
    """A catalogue, and the file of its models."""

    def __init__(self, path: Path) -> None:
        self.catalogue = RoutedModels(Defaults(connect=1.0, first_token=1.0, idle=1.0))
        self._reader = Reader(path, {}, default="")

    def put(self, text: str) -> None:
        self.catalogue.serve(self._reader(text.encode()))

    def names(self) -> list[str]:
        with self.catalogue.lease() as models:
            return [model.name for model in models]

    def deployment(self, model: str = "", number: int = 0) -> Deployment:
        with self.catalogue.lease() as models:
            return models.get(model).targets[number].deployment

    async def ask(self, model: str = "") -> str:
        with self.catalogue.lease() as models:
            return "".join([event.text async for event in models.get(model).generate(PROMPT)])


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path / "models.yaml")
    yield served
    await served.catalogue.aclose()


def models_file(*stubs: Stub, model: str = "a", deployment: str = "", more: str = "") -> str:
    servers = ", ".join(f"s{at}: {{kind: openai, url: '{stub.url}'}}" for at, stub in enumerate(stubs))
    places = ", ".join(f"{{server: s{at}, model: stub, {deployment}}}" for at in range(len(stubs)))
    return f"servers: {{{servers}}}\nmodels: [{{name: {model}, deployments: [{places}]}}]\n{more}"


async def test_a_new_file_takes_effect_at_once(served: Served, stub: Stub) -> None:
    """A new file takes effect at once: new names are found and removed ones are not. The first model is the
    default.
    """
    served.put(models_file(stub))
    assert await served.ask("a") == await served.ask()
    served.put(models_file(stub, model="b"))
    assert served.names() == ["b"]
    assert await served.ask("b")
    with pytest.raises(NotFound):
        await served.ask("a")


async def test_a_running_answer_completes_after_a_change(served: Served, stub: Stub, other: Stub) -> None:
    """A running answer completes on its server, whose connections close afterwards."""
    served.put(models_file(stub))
    stub.script(stream(["a"] * 30, pace=0.01))
    answer = asyncio.create_task(served.ask())
    await eventually(lambda: bool(stub.requests))
    served.put(models_file(other, model="b"))
    assert await served.ask("b")
    assert not answer.done()
    assert (stub.open_connections, len(other.requests)) == (1, 1)
    assert await answer == "a" * 30 + "stop"
    await eventually(lambda: stub.open_connections == 0)


async def test_a_request_can_start_with_the_models_that_it_holds(served: Served, stub: Stub) -> None:
    """A request can start with the models that it holds, even after a change."""
    served.put(models_file(stub))
    with served.catalogue.lease() as models:
        events = models.get("a").generate(PROMPT)
        served.put("servers: {s: {kind: extractive}}\nmodels: [{name: b, deployments: [{server: s}]}]")
        await asyncio.sleep(0.05)
        assert [event async for event in events]
    await eventually(lambda: stub.open_connections == 0)


async def test_an_unchanged_deployment_keeps_its_state(served: Served, stub: Stub, other: Stub) -> None:
    """A deployment keeps its circuit and connections if only weights, tiers or other servers change. A change of
    its limits makes a new one.
    """
    served.put(models_file(stub, more="circuit: {failures: 1, seconds: 60}"))
    await served.ask()
    stub.script(FAULTS["fault-500"]())
    with pytest.raises(CausewayError):
        await served.ask()
    before = served.deployment()
    assert before.circuit.state is State.OPEN
    served.put(
        models_file(stub, other, deployment="weight: 5, tier: 2", more="circuit: {failures: 1, seconds: 60}")
    )
    assert served.deployment() is before
    assert await served.ask()
    served.put(models_file(stub, deployment="max_concurrency: 2", more="circuit: {failures: 1, seconds: 60}"))
    assert served.deployment() is not before
    await served.ask()
    assert {request.connection for request in stub.requests} == {1}
    await eventually(lambda: other.open_connections == 0)


async def test_a_changed_server_gets_new_connections(served: Served, stub: Stub) -> None:
    """A change of a server opens new connections and closes the old ones."""
    served.put(models_file(stub))
    await served.ask()
    served.put(models_file(stub).replace("kind: openai,", "kind: openai, headers: {X-A: b},"))
    await served.ask()
    assert [request.headers.get("x-a") for request in stub.requests] == [None, "b"]
    await eventually(lambda: stub.open_connections == 1)


async def test_closing_closes_all_connections(served: Served, stub: Stub, other: Stub) -> None:
    """Closing closes the connections of the current and of older configurations."""
    served.put(models_file(stub))
    await served.ask()
    with served.catalogue.lease():
        served.put(models_file(other))
        await served.ask()
        assert (stub.open_connections, other.open_connections) == (1, 1)
        await served.catalogue.aclose()
    await eventually(lambda: (stub.open_connections, other.open_connections) == (0, 0))


async def test_reloading_under_load_loses_no_answer(served: Served, stub: Stub, other: Stub) -> None:
    """Every answer is complete, although the configuration changes continuously."""
    files: list[Callable[[], str]] = [
        lambda: models_file(stub),
        lambda: models_file(other),
        lambda: models_file(stub, other),
    ]
    served.put(files[0]())
    tasks = []
    for number in range(60):
        tasks.append(asyncio.create_task(served.ask()))
        await asyncio.sleep(0.003)
        served.put(files[number % 3]())
    texts = await asyncio.gather(*tasks)
    assert set(texts) == {"word0 word1 word2 word3 stop"}


async def test_the_file_determines_whether_a_model_accepts_pictures(served: Served, stub: Stub) -> None:
    """The key `pictures` of a model determines whether the model accepts pictures."""
    for expected in (True, False):
        served.put(models_file(stub).replace("{name: a,", f"{{name: a, pictures: {str(expected).lower()},"))
        with served.catalogue.lease() as models:
            assert [model.takes_pictures for model in models] == [expected]


async def test_the_file_determines_whether_a_model_calls_tools(served: Served, stub: Stub) -> None:
    """The key `tools` of a model says whether it calls tools."""
    for expected in (True, False):
        served.put(models_file(stub).replace("{name: a,", f"{{name: a, tools: {str(expected).lower()},"))
        with served.catalogue.lease() as models:
            assert [model.calls_tools for model in models] == [expected]
