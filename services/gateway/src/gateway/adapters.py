"""Defines the gateway's collaborators, and creates the real adapters for its ports."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from detection.moderation.thread_pool import ThreadPool
from servicekit.channel import open_channel
from servicekit.original_store import create_original_store
from servicekit.tls import Certificates

from gateway.clients import generator, guardrails, ingest, retriever
from gateway.clients.backlog import Backlog
from gateway.clients.cancelled_calls import CancelledCalls
from gateway.clients.chat_history import NatsHistory
from gateway.clients.embedder import GrpcEmbedder
from gateway.clients.file_cache import FileCache
from gateway.clients.gateway_beats import GatewayBeats
from gateway.clients.health_probes import GrpcProbe, NatsProbe, OriginalsProbe
from gateway.clients.index_management import GrpcIndexes
from gateway.clients.jobs import NatsJobs
from gateway.clients.key_watch import KeyWatch
from gateway.clients.local_guardrails import LocalGuardrails
from gateway.clients.memory import NatsMemory
from gateway.clients.nats_connection import NatsLink
from gateway.clients.originals import CachedOriginals
from gateway.clients.outbox import Outbox
from gateway.clients.page_pictures import NatsPictures
from gateway.clients.period_keys import PeriodKeyWatch
from gateway.clients.quota_share import QuotaShare
from gateway.clients.response_jobs import NatsResponseJobs
from gateway.clients.response_log import NatsResponseLog
from gateway.clients.responses import NatsResponses
from gateway.clients.shared_detectors import SharedDetectors
from gateway.clients.text_documents import NatsTexts
from gateway.domain import Detectors, Policy
from gateway.frontends import detector_policy
from gateway.frontends.model_names import ModelNames
from gateway.frontends.profiles_file import FrontendsFile
from gateway.frontends.service_policy import ServicePolicy
from gateway.identity.content_sealing import ContentKeys
from gateway.identity.key_ring import KeyRing
from gateway.identity.link_signing import LinkKeys
from gateway.ports.answering import Generator, Guardrails, Pictures, Retriever
from gateway.ports.chat_history import History
from gateway.ports.documents import Catalogue, Ingest, Originals
from gateway.ports.health import Probe
from gateway.ports.index_management import Embedder, Indexes, Texts
from gateway.ports.jobs import Jobs
from gateway.ports.memory import Memory
from gateway.ports.records import Records
from gateway.ports.response_jobs import ResponseJobs
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.quotas import limits
from gateway.quotas.ledger import Ledger, register_metrics
from gateway.response_runs.peers import Peers
from gateway.server import prices, recording
from gateway.server.authentication import Tokens
from gateway.server.prices import Prices
from gateway.server.running_calls import RunningCalls
from gateway.settings import Settings

_DETECTOR_THREADS = 2  # they construct detectors and judge long pieces of answers


@dataclass(frozen=True, slots=True)
class Services:
    """The gateway's collaborators: the real adapters, or fakes in tests.

    Attributes:
        probes: Check the dependencies.
        policy: Returns the detectors that judge every request.
        frontends: The file of the front end profiles; None: only the default profile exists.
        service_policy: Returns the policy of the guardrails service; None: not known, or the service has none.
        model_names: Returns the names of the models. An assistant must not have the name of a model.
        keys: The API keys.
        link_keys: The keys that sign links.
        content_keys: The keys that encrypt the contents that clients store.
        tokens: Verifies OpenID Connect tokens; None: tokens are not accepted.
        prices: Returns the current prices of tokens.
        ledger: Counts the usage of quotas; None: usage has no limits.
        calls: The running calls of this gateway.
        peers: The live gateways.
    """

    retriever: Retriever
    generator: Generator
    guardrails: Guardrails
    ingest: Ingest
    catalogue: Catalogue
    originals: Originals
    pictures: Pictures
    history: History
    memory: Memory
    responses: ResponseStore
    response_log: ResponseLog
    response_jobs: ResponseJobs
    texts: Texts
    indexes: Indexes
    embedder: Embedder
    jobs: Jobs
    records: Records
    probes: Sequence[Probe] = ()
    policy: Callable[[], Detectors] = Detectors
    frontends: FrontendsFile | None = None
    service_policy: Callable[[], Policy | None] = lambda: None
    model_names: Callable[[], frozenset[str]] = frozenset
    keys: KeyRing = field(default_factory=KeyRing)
    link_keys: LinkKeys = field(default_factory=LinkKeys)
    content_keys: ContentKeys = field(default_factory=ContentKeys)
    tokens: Tokens | None = None
    prices: Callable[[], Prices] = Prices
    ledger: Ledger | None = None
    calls: RunningCalls = field(default_factory=RunningCalls)
    peers: Peers = field(default_factory=Peers)


@contextlib.asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Provide the real adapters, and close them at the end."""
    certificates = Certificates.of(settings)
    async with contextlib.AsyncExitStack() as stack:
        channels = {
            "retriever": open_channel(settings.retriever_target, [retriever.DESCRIPTOR], certificates),
            "generator": open_channel(settings.generator_target, [generator.DESCRIPTOR], certificates),
            "guardrails": open_channel(settings.guardrails_target, [guardrails.DESCRIPTOR], certificates),
        }
        for channel in channels.values():
            await stack.enter_async_context(channel)
        nats = await stack.enter_async_context(
            NatsLink(
                settings.nats_url,
                replicas=settings.nats_replicas,
                history_days=settings.history_days,
                memory_hours=settings.memory_hours,
                response_days=settings.response_days,
                response_bytes=settings.response_bytes,
                response_log_bytes=settings.response_log_bytes,
                record_days=settings.record_days,
                stream_bytes=settings.nats_stream_bytes,
                usage_bytes=settings.usage_bytes,
                audit_bytes=settings.audit_bytes,
                certificates=certificates,
            )
        )
        cache = FileCache(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="causeway-originals-"))),
            settings.content_cache_bytes,
        )
        policy: Callable[[], Detectors] = Detectors
        if settings.policy_file is not None:
            file = await stack.enter_async_context(detector_policy.load(settings.policy_file))
            policy = lambda: file.current  # noqa: E731  # a function would need more lines
        records = await stack.enter_async_context(Outbox(nats.records))
        recording.register_metrics(records)
        current_prices: Callable[[], Prices] = Prices
        if settings.prices_file is not None:
            prices_file = await stack.enter_async_context(prices.load(settings.prices_file))
            current_prices = lambda: prices_file.current  # noqa: E731  # as above
        ledger = None
        if settings.quotas_file is not None:
            quotas = await stack.enter_async_context(limits.load(settings.quotas_file))
            ledger = Ledger(lambda: quotas.current)
            register_metrics(ledger)
            await stack.enter_async_context(QuotaShare(nats.quotas, ledger))
        probes: list[Probe] = [*(GrpcProbe(name, channel) for name, channel in channels.items()), NatsProbe(nats)]
        link_keys, content_keys = LinkKeys(), ContentKeys()
        if settings.frontends_file is not None:
            await stack.enter_async_context(PeriodKeyWatch(nats.link_keys, link_keys, "the keys of signed links"))
        await stack.enter_async_context(PeriodKeyWatch(nats.content_keys, content_keys, "the keys of contents"))
        key_ring, tokens = KeyRing(), None
        if settings.accepts_keys:
            probes.append(await stack.enter_async_context(KeyWatch(nats.api_keys, key_ring)))
        if settings.accepts_tokens:
            from gateway.identity import oidc  # its libraries are large

            tokens = await stack.enter_async_context(oidc.tokens(settings, settings.public_url))
        grpc_guardrails = guardrails.GrpcGuardrails(channels["guardrails"])
        chosen_guardrails: Guardrails = grpc_guardrails
        if settings.guardrails_in_process:
            workers = ThreadPool(_DETECTOR_THREADS)
            stack.callback(workers.close)
            shared = await stack.enter_async_context(SharedDetectors(grpc_guardrails, workers))
            chosen_guardrails = LocalGuardrails(grpc_guardrails, shared)
        service_policy = await stack.enter_async_context(ServicePolicy(grpc_guardrails))
        grpc_retriever = retriever.GrpcRetriever(channels["retriever"])
        grpc_generator = generator.GrpcGenerator(channels["generator"])
        model_names: Callable[[], frozenset[str]] = frozenset
        if settings.frontends_file is not None:
            model_names = await stack.enter_async_context(ModelNames(grpc_generator))
        originals = create_original_store(settings, nats.ingest)
        if settings.s3_bucket:
            probes.append(OriginalsProbe(originals))
        backlog = Backlog(settings.max_jobs, settings.max_tenant_jobs)
        calls = RunningCalls()
        await stack.enter_async_context(CancelledCalls(nats.client, calls))
        peers = Peers()
        await stack.enter_async_context(GatewayBeats(nats.client, peers))
        yield Services(
            retriever=grpc_retriever,
            generator=grpc_generator,
            guardrails=chosen_guardrails,
            ingest=ingest.NatsIngest(nats.ingest, originals, backlog),
            catalogue=grpc_retriever,
            originals=CachedOriginals(originals, cache),
            pictures=NatsPictures(nats.ingest),
            history=NatsHistory(nats.history),
            memory=NatsMemory(nats.memory),
            responses=NatsResponses(nats.responses, nats.large_responses, limit=settings.responses_per_user),
            response_log=NatsResponseLog(nats.response_log, limit=settings.response_logs_per_tenant),
            response_jobs=NatsResponseJobs(nats.response_jobs, limit=settings.background_per_tenant),
            texts=NatsTexts(nats.ingest, originals, backlog),
            indexes=GrpcIndexes(channels["retriever"]),
            embedder=GrpcEmbedder(channels["retriever"]),
            jobs=NatsJobs(nats.ingest, backlog),
            records=records,
            probes=probes,
            policy=policy,
            frontends=FrontendsFile(settings.frontends_file) if settings.frontends_file is not None else None,
            service_policy=service_policy,
            model_names=model_names,
            keys=key_ring,
            link_keys=link_keys,
            content_keys=content_keys,
            tokens=tokens,
            prices=current_prices,
            ledger=ledger,
            calls=calls,
            peers=peers,
        )
