"""The served models, and earlier models that requests still use after a change of the configuration."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from generator.configuration.adapters import Defaults, Owner, first_token_timeout, open_model, open_server
from generator.configuration.models_file import Configuration
from generator.configuration.schema import CircuitEntry, DeploymentEntry, ModelEntry, ServerEntry
from generator.ports import TokenCounter
from generator.routing.attempts import Retries, Target
from generator.routing.circuit_breaker import CircuitBreaker
from generator.routing.concurrency import ConcurrencyLimiter
from generator.routing.deployment import Deployment
from generator.routing.models import Models
from generator.routing.route import Route

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Spec:
    """The configuration of a deployment. If it is unchanged, the deployment keeps its state."""

    model: ModelEntry
    deployment: DeploymentEntry
    server: ServerEntry
    tokens: TokenCounter
    circuit: CircuitEntry


@dataclass(frozen=True, slots=True)
class _BuiltDeployment:
    deployment: Deployment
    owner: Owner


class _Snapshot:
    """One configuration with its routes.

    Attributes:
        models: The routes of the configuration.
        deployments: Each deployment with the part of the configuration that it was built from.
        servers: Name, entry and shared connections of each server.
        leases: The number of requests that use the snapshot.
    """

    def __init__(
        self,
        models: Models,
        deployments: list[tuple[_Spec, _BuiltDeployment]],
        servers: list[tuple[str, ServerEntry, Owner | None]],
    ) -> None:
        self.models = models
        self.deployments = deployments
        self.servers = servers
        self.leases = 0

    def owners(self) -> set[Owner]:
        """Return the objects that hold connections."""
        shared = {owner for _, _, owner in self.servers if owner is not None}
        return shared | {built.owner for _, built in self.deployments}


class RoutedModels:
    """A `generator.routing.models.Catalogue` from a configuration that may change while answers run.

    A request keeps the models that were current when it started. After the last request with an earlier
    configuration, the catalogue closes the models and servers that the current configuration does not have.
    Unchanged deployments keep their connections, load and circuits. Use the catalogue in one event loop.

    Args:
        defaults: Default values for what a configuration omits.
    """

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._snapshots: list[_Snapshot] = []  # the current one last
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def lease(self) -> Iterator[Models]:
        """Provide the current models, and keep them usable during the block."""
        snapshot = self._snapshots[-1]
        snapshot.leases += 1
        try:
            yield snapshot.models
        finally:
            snapshot.leases -= 1
            self._sweep()

    def deployments(self) -> list[Deployment]:
        """Return the deployments of the current configuration; none before the first configuration."""
        return [built.deployment for _, built in self._snapshots[-1].deployments] if self._snapshots else []

    def serve(self, configuration: Configuration) -> None:
        """Serve this configuration from now on."""
        self._snapshots.append(self._build_snapshot(configuration))
        self._sweep()

    async def aclose(self) -> None:
        """Close everything."""
        owners = {owner for snapshot in self._snapshots for owner in snapshot.owners()}
        self._snapshots.clear()
        for owner in owners:
            self._close(owner)
        if self._closing:
            await asyncio.wait(self._closing)

    def _build_snapshot(self, configuration: Configuration) -> _Snapshot:
        file, old = configuration.file, self._snapshots[-1] if self._snapshots else None
        servers = []
        for name, entry in file.servers.items():
            unchanged = [server for server in (old.servers if old else ()) if server[:2] == (name, entry)]
            servers.append(unchanged[0] if unchanged else (name, entry, open_server(entry, self._defaults)))
        servers_by_name = {name: (entry, owner) for name, entry, owner in servers}
        deployments: list[tuple[_Spec, _BuiltDeployment]] = []
        routes = []
        for model in file.models:
            tokens = configuration.counters[model.name]
            targets = []
            for deployment in model.deployments:
                server, owner = servers_by_name[deployment.server]
                spec = _spec(model, deployment, server, tokens, file.circuit)
                reused = [built for old_spec, built in (old.deployments if old else ()) if old_spec == spec]
                built = reused[0] if reused else self._build_deployment(spec, owner)
                deployments.append((spec, built))
                targets.append(Target(built.deployment, deployment.weight, deployment.tier))
            retries = Retries(file.retries.most, file.retries.within)
            routes.append(
                Route(
                    model.name,
                    targets,
                    tokens=tokens,
                    window=model.context_window,
                    retries=retries,
                    takes_pictures=model.pictures,
                    calls_tools=model.tools,
                )
            )
        routes.sort(key=lambda route: bool(configuration.default) and route.name != configuration.default)
        return _Snapshot(Models(routes), deployments, servers)

    def _build_deployment(self, spec: _Spec, connections: Owner | None) -> _BuiltDeployment:
        model = open_model(spec.model, spec.deployment, spec.server, connections, spec.tokens, self._defaults)
        name = f"{spec.deployment.server}/{spec.deployment.model or spec.model.name}"
        deployment = Deployment(
            name,
            model,
            slots=ConcurrencyLimiter(spec.deployment.max_concurrency, spec.deployment.queue),
            circuit=CircuitBreaker(name, failures=spec.circuit.failures, seconds=spec.circuit.seconds),
            first_token_timeout=first_token_timeout(spec.server, self._defaults),
        )
        return _BuiltDeployment(deployment, connections or model)

    def _sweep(self) -> None:
        """Remove earlier snapshots without requests, and close the connections that only these snapshots use."""
        current = self._snapshots[-1:]
        leased = [snapshot for snapshot in self._snapshots[:-1] if snapshot.leases]
        unused = [snapshot for snapshot in self._snapshots[:-1] if not snapshot.leases]
        if not unused:
            return
        self._snapshots = leased + current
        alive = {owner for snapshot in self._snapshots for owner in snapshot.owners()}
        for owner in {owner for snapshot in unused for owner in snapshot.owners()} - alive:
            self._close(owner)

    def _close(self, owner: Owner) -> None:
        async def close() -> None:
            try:
                await owner.aclose()
            except Exception:  # no task awaits the result
                _log.warning("connections of a model server could not be closed cleanly", exc_info=True)

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _spec(
    model: ModelEntry, deployment: DeploymentEntry, server: ServerEntry, tokens: TokenCounter, circuit: CircuitEntry
) -> _Spec:
    # The weight, the tier, and the model's other deployments may change while the deployment runs.
    return _Spec(
        model.model_copy(update={"deployments": ()}),
        deployment.model_copy(update={"weight": 1.0, "tier": 1}),
        server,
        tokens,
        circuit,
    )
