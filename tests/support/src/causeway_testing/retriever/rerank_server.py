"""Servers for tests of rerankers.

`RerankServer` speaks the HTTP protocols of Cohere and of Hugging Face. `MODEL` runs in a real Triton server.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tokenizers
from aiohttp import web
from tokenizers import models, normalizers, pre_tokenizers, processors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
CONFIGURATION = """
backend: "python"
max_batch_size: 4
input [
  { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "token_type_ids" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [ { name: "logits" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
# A cross-encoder without weights. The logit depends on the share of the query's tokens that the passage contains.
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        ids, mask, types = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("input_ids", "attention_mask", "token_type_ids")
        )
        rows = [self._logit(*row) for row in zip(ids, mask, types)]
        logits = np.array(rows, np.float32)[:, None]
        return pb_utils.InferenceResponse([pb_utils.Tensor("logits", logits)])

    def _logit(self, ids, mask, types):
        query = {i for i, m, t in zip(ids, mask, types) if m and not t and i > 3}
        text = {i for i, m, t in zip(ids, mask, types) if m and t and i > 3}
        return 8 * len(query & text) / max(1, len(query)) - 4
"""


def write_tokenizer(path: Path, words: list[str]) -> None:
    """Write a tokenizer.json with whole words, which joins pairs as BERT does."""
    vocabulary = {word: index for index, word in enumerate((*_SPECIAL, *words))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(path))


class RerankServer:
    """A server whose score of a text is the share of the query's words that the text contains.

    Attributes:
        script: The first responses in order, each a status or a body.
        requests: Path, headers and body of each request.
        together: The maximum number of concurrent requests.
        hold: The event that each response awaits.
    """

    def __init__(self) -> None:
        self.script: list[int | Any] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.together = self.running = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with Cohere's protocol, or below ``/tei`` with that of Hugging Face."""
        body = await request.json()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path, headers, body))
        self.running += 1
        self.together = max(self.together, self.running)
        try:
            await self.hold.wait()
        finally:
            self.running -= 1
        if self.script:
            step = self.script.pop(0)
            if isinstance(step, int):
                headers = {"retry-after": "7", "location": request.path}
                return web.json_response({"message": "no"}, status=step, headers=headers)
            return web.Response(text=step if isinstance(step, str) else json.dumps(step))
        words = set(body["query"].lower().split())
        texts = body.get("documents") or body["texts"]
        scores = [len(words & set(text.lower().split())) / len(words) for text in texts]
        order = sorted(range(len(texts)), key=lambda index: -scores[index])
        if request.path.startswith("/tei"):
            return web.json_response([{"index": index, "score": scores[index]} for index in order])
        return web.json_response(
            {"results": [{"index": index, "relevance_score": scores[index]} for index in order]}
        )


@asynccontextmanager
async def rerank_server() -> AsyncIterator[RerankServer]:
    """Start a server on a free port."""
    server = RerankServer()
    application = web.Application()
    application.router.add_post("/v1/rerank", server.answer)
    application.router.add_post("/tei/rerank", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.hold.set()
        await runner.cleanup()
