"""Counts tokens with the ``/tokenize`` route of vLLM and llama.cpp.

https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html#tokenizer-api,
https://github.com/ggml-org/llama.cpp/tree/master/tools/server#post-tokenize-tokenize-a-given-text
"""

import hashlib
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import structlog
from pydantic import SecretStr

from generator.domain import ChatMessage
from generator.tokenizers.estimate import EstimatedTokens, count_conversation

_log = structlog.get_logger(__name__)
_CACHE_SIZE = 4096
_TIMEOUT_SECONDS = 2.0
_CONCURRENCY = 8
# After a failure, the counter sends no requests for this many seconds. Otherwise, counting a hundred passages could
# wait for a hundred time-outs. During this pause, `exact` is false.
_PAUSE_SECONDS = 10.0

ServerKind = Literal["vllm", "llamacpp"]


class ServerTokens:
    """Counts tokens with the model server and caches the counts; uses estimates while the server does not respond.

    Args:
        url: The server's URL, without ``/v1``.
        kind: The kind of server.
        model: The model's name on the server.
        api_key: The key; None if the server needs no key.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        kind: ServerKind,
        model: str,
        *,
        api_key: SecretStr | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # This import is here, because few installations need the package.
        import httpx2

        self._api_key = api_key
        self._http = httpx2.Client(base_url=url.rstrip("/"), timeout=_TIMEOUT_SECONDS)
        # Several models can share a counter, so no model closes it. The client is closed when the counter is
        # garbage-collected.
        self.close = weakref.finalize(self, self._http.close)
        self._kind = kind
        self._model = model
        self._name = f"{kind}+{url}#{model}"
        self._clock = clock
        self._estimate = EstimatedTokens()
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()
        self._paused_until = -1.0

    @property
    def exact(self) -> bool:
        """Return whether counts come from the server at present."""
        return self._clock() >= self._paused_until

    @property
    def counting(self) -> str:
        """Return a name that contains the server and the model; empty while the counts are estimates."""
        return self._name if self.exact else ""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        if not text:
            return 0
        if self._kind == "vllm":
            body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        else:
            body = {"content": text, "add_special": False, "parse_special": False}
        return self._cached_count(body, lambda: self._estimate.count(text))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the token count of each text; count up to eight texts concurrently."""
        with ThreadPoolExecutor(min(_CONCURRENCY, len(texts)) or 1) as pool:
            return list(pool.map(self.count, texts))

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of tokens of a conversation.

        vLLM renders the conversation with the model's chat template. For llama.cpp, the counter uses the template
        that OpenAI documents.
        """
        if self._kind != "vllm":  # llama.cpp counts only texts
            return count_conversation(self.count, messages)
        body = {"model": self._model, "messages": [_message(message) for message in messages]}
        return self._cached_count(body, lambda: self._estimate.count_messages(messages))

    def _cached_count(self, body: dict[str, Any], estimate: Callable[[], int]) -> int:
        import httpx2

        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:  # a lone surrogate, which JSON cannot encode
            return estimate()
        key = hashlib.sha256(content).digest()
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        if not self.exact:
            return estimate()
        try:
            count = self._request(content)
        except (httpx2.HTTPError, ValueError, RecursionError, LookupError, TypeError) as error:
            self._paused_until = self._clock() + _PAUSE_SECONDS
            _log.warning(
                "the model server did not count the tokens; estimates are used", model=self._model, error=str(error)
            )
            return estimate()
        with self._lock:
            self._cache[key] = count
            while len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
        return count

    def _request(self, content: bytes) -> int:
        headers = {"content-type": "application/json"}
        if self._api_key is not None:
            headers["authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        response = self._http.post("/tokenize", content=content, headers=headers)
        response.raise_for_status()
        answer = msgspec.json.decode(response.content)
        count = answer["count"] if self._kind == "vllm" else len(answer["tokens"])
        if not isinstance(count, int):
            raise TypeError("the count is not an integer")
        return count


def _message(message: ChatMessage) -> dict[str, Any]:
    extra = msgspec.json.decode(message.extra_json) if message.extra_json else {}
    content = msgspec.Raw(message.content_json) if message.content_json else message.text
    return {**extra, "role": message.role, "content": content}
