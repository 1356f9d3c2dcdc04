"""Constructs the FastAPI routers. They serve all paths except those of raw ASGI applications (`main.build`)."""

import asyncio

from fastapi import APIRouter
from servicekit.allowed_urls import AllowedUrls

from gateway.adapters import Services
from gateway.identity.provider_origins import ProviderOrigins
from gateway.routes import (
    application,
    chat_history,
    console,
    documents,
    embeddings,
    health,
    index_configuration,
    indexes,
    jobs,
    models,
    originals,
    retrieve,
    stored_documents,
    text_documents,
    users,
)
from gateway.routes import metrics as metrics_route
from gateway.routes.uploads import UploadSlots
from gateway.server.metrics import Metrics
from gateway.settings import Settings


def routers(
    settings: Settings, services: Services, slots: UploadSlots, draining: asyncio.Event, metrics: Metrics
) -> list[APIRouter]:
    """Return the routers of documents, indexes, models and operations."""
    return [
        documents.router(
            services.ingest,
            services.catalogue,
            slots,
            AllowedUrls.of(settings.ingest_urls),
            timeout=settings.upload_timeout,
            max_characters=settings.ingest_max_characters,
        ),
        jobs.router(services.ingest, services.jobs, draining, timeout=settings.upload_timeout),
        text_documents.router(
            services.texts,
            services.retriever,
            slots,
            draining,
            upload_timeout=settings.upload_timeout,
            index_timeout=settings.index_timeout,
            max_characters=settings.ingest_max_characters,
        ),
        indexes.router(
            services.indexes,
            services.catalogue,
            services.pictures,
            services.originals,
            timeout=settings.answer_timeout,
        ),
        stored_documents.router(services.catalogue, services.ingest, timeout=settings.answer_timeout),
        index_configuration.router(services.indexes, timeout=settings.answer_timeout),
        retrieve.router(services.retriever, timeout=settings.answer_timeout),
        models.router(services.generator, services.embedder, timeout=settings.answer_timeout),
        embeddings.router(services.embedder, timeout=settings.answer_timeout),
        metrics_route.router(metrics, tenants=settings.auth == "none" or settings.metrics_open),
        health.router(services.probes),
    ]


def front_end_routers(
    settings: Settings, services: Services, slots: UploadSlots, draining: asyncio.Event
) -> list[APIRouter]:
    """Return the routers for chat front ends: application, originals, chat history, user data and the console."""
    return [
        application.router(
            services.ingest,
            services.catalogue,
            services.pictures,
            services.originals,
            services.generator,
            slots,
            draining,
            timeout=settings.upload_timeout,
            fetches_urls=bool(settings.ingest_urls),
            login=application.Login.of(settings.oidc_issuer, settings.oidc_client_id, settings.oidc_scopes)
            if settings.accepts_tokens
            else None,
        ),
        originals.router(services.catalogue, services.originals, timeout=settings.upload_timeout),
        chat_history.router(services.history, services.memory, timeout=settings.answer_timeout),
        users.router(
            services.responses,
            services.response_log,
            services.history,
            services.memory,
            timeout=settings.answer_timeout,
        ),
        *([console.router(_origins(settings))] if settings.console else []),
    ]


def _origins(settings: Settings) -> console.Origins:
    if not settings.accepts_tokens:
        return console.no_origins
    from gateway.identity import oidc  # its libraries are large

    return ProviderOrigins(settings.oidc_issuer, oidc.fetch_with_new_client)
