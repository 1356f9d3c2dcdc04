"""Fixtures of routing: routes over models and over recording model servers."""

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from causeway_testing.generator import FakeTokenCounter, deployed, limits_for
from causeway_testing.model_server import ModelServer as Stub
from generator.openai.endpoint import Endpoint
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits
from generator.openai.server import ModelServer
from generator.ports import Model
from generator.routing.attempts import Retries, Target
from generator.routing.deployment import Deployment
from generator.routing.route import Route

MakeRoute = Callable[..., Route]


@pytest.fixture
def route() -> MakeRoute:
    """Return a function that creates routes of deployments or models. ``tiers`` puts each into its own tier."""

    def make(
        *served: Deployment | Model,
        weights: Sequence[float] = (),
        tiers: bool = False,
        retries: Retries | None = None,
        window: int | None = None,
    ) -> Route:
        deployments = [model if isinstance(model, Deployment) else deployed(model) for model in served]
        targets = [
            Target(each, weights[at] if weights else 1.0, at + 1 if tiers else 1)
            for at, each in enumerate(deployments)
        ]
        return Route(
            "public",
            targets,
            tokens=FakeTokenCounter(),
            retries=retries or Retries(maximum=0),
            window=window,
            rng=random.Random(7),
        )

    return make


@pytest.fixture
async def deployment() -> AsyncIterator[Callable[..., Deployment]]:
    """Yield a function that creates deployments on recording servers, and close their connections at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(
            server: Stub | str, model: str = "stub", *, limits: Limits | None = None, **members: int
        ) -> Deployment:
            url = server if isinstance(server, str) else server.url
            connection = ModelServer(Endpoint(url), limits or limits_for(model))
            stack.push_async_callback(connection.aclose)
            adapter = OpenAIModel("public", connection, remote_name=model, tokens=FakeTokenCounter())
            return deployed(adapter, name=f"{url}/{model}", **members)

        yield make
