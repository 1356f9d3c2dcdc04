import asyncio

from causeway_testing.gateway.answering import FakeGuardrails
from causeway_testing.servers import eventually
from gateway.domain import Action, Detector, Detectors, Policy
from gateway.frontends.service_policy import ServicePolicy
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable

POLICY = Policy(Detectors(output=(Detector("words", Action.BLOCK),)), "No.")


class Guardrails(FakeGuardrails):
    unavailable = False
    calls = 0

    async def policy(self, deadline: Deadline) -> Policy | None:
        self.calls += 1
        if self.unavailable:
            raise Unavailable("unavailable")
        return await super().policy(deadline)


async def test_the_policy_is_loaded_and_refreshed() -> None:
    """A change of the service's policy is fetched. During an outage of the service, the last policy remains."""
    guardrails = Guardrails(rules=POLICY)
    async with ServicePolicy(guardrails, interval=0.01) as policy:
        assert policy() is None
        await eventually(lambda: policy() == POLICY)
        guardrails.unavailable = True
        before = guardrails.calls
        await eventually(lambda: guardrails.calls > before + 1)
        assert policy() == POLICY
        guardrails.unavailable, guardrails.rules = False, None
        await eventually(lambda: policy() is None)


async def test_closing_succeeds_if_a_cancellation_is_lost() -> None:
    """The closing ends even if `asyncio.wait_for` loses a cancellation, as before Python 3.12."""

    class IgnoresCancellation(FakeGuardrails):
        async def policy(self, deadline: Deadline) -> Policy | None:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                await asyncio.sleep(600)
            return None

    async with asyncio.timeout(60):
        async with ServicePolicy(IgnoresCancellation()) as policy:
            assert policy() is None
            await asyncio.sleep(0.01)


async def test_the_policy_is_loaded_on_demand() -> None:
    """The guardrails are not called before a profile reads the policy, because most deployments do not use it."""
    guardrails = Guardrails(rules=POLICY)
    async with ServicePolicy(guardrails, interval=0.001):
        await asyncio.sleep(0.02)
    assert guardrails.calls == 0
