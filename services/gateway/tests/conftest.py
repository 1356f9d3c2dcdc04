from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from gateway.domain import Passage
from gateway.fakes import FakeGenerator, FakeGuardrails, FakeIngest, FakeProbe, FakeRetriever
from gateway.main import Services, build_app
from gateway.settings import Settings


def passage(number: int, text: str, sourcepage: str = "") -> Passage:
    name = f"guide-{number}.pdf"
    return Passage(
        id=f"p{number}",
        index="docs",
        document_id=f"d{number}",
        sourcefile=name,
        sourcepage=sourcepage or f"{name}#page={number}",
        text=text,
        score=1.0 / (number + 1),
        dense_score=0.5,
        sparse_score=2.0,
        page=number,
    )


PASSAGES = [passage(1, "The ferry leaves at nine."), passage(2, "The bridge opens at noon.")]


@dataclass
class Fakes:
    retriever: FakeRetriever = field(default_factory=lambda: FakeRetriever({"docs": list(PASSAGES), "empty": []}))
    generator: FakeGenerator = field(default_factory=lambda: FakeGenerator.saying("At ", "nine", "."))
    guardrails: FakeGuardrails = field(default_factory=FakeGuardrails)
    ingest: FakeIngest = field(default_factory=FakeIngest)
    probes: list[FakeProbe] = field(default_factory=lambda: [FakeProbe("retriever"), FakeProbe("nats")])

    def services(self) -> Services:
        return Services(self.retriever, self.generator, self.guardrails, self.ingest, self.probes)


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(default_index="docs", max_body_bytes=20_000, max_upload_bytes=100_000)


@pytest.fixture
async def client(fakes: Fakes, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(settings, fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http
