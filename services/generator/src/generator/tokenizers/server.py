"""Counts tokens with the model server: vLLM's and llama.cpp's ``/tokenize``.

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
from generator.tokenizers.estimate import EstimatedTokens, conversation

_log = structlog.get_logger(__name__)
_MOST_KEPT = 4096
_PATIENCE = 2.0
_TOGETHER = 8
# A server that did not answer is not called for a while, so that counting a hundred passages does not wait for it a
# hundred times. During this time no count is exact.
_REST = 10.0

Dialect = Literal["vllm", "llamacpp"]


class ServerTokens:
    """Counts with the model server, once per text; estimates while it does not answer.

    Args:
        url: The server's URL, without ``/v1``.
        dialect: The kind of server.
        model: The server's name of the model.
        api_key: None if it needs none.
        clock: Returns seconds, monotonic.
    """

    def __init__(
        self,
        url: str,
        dialect: Dialect,
        model: str,
        *,
        api_key: SecretStr | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Imported here, because few deployments need it.
        import httpx2

        self._api_key = api_key
        self._http = httpx2.Client(base_url=url.rstrip("/"), timeout=_PATIENCE)
        # Counters are shared, so mostly no owner closes them.
        self.close = weakref.finalize(self, self._http.close)
        self._dialect = dialect
        self._model = model
        self._name = f"{dialect}+{url}#{model}"
        self._clock = clock
        self._estimate = EstimatedTokens()
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()
        self._rests_until = -1.0

    @property
    def exact(self) -> bool:
        """Return whether no recent count was an estimate."""
        return self._clock() >= self._rests_until

    @property
    def counting(self) -> str:
        """Return the name by server and model; empty while texts are estimated."""
        return self._name if self.exact else ""

    def count(self, text: str) -> int:
        """Return the tokens of the text alone."""
        if not text:
            return 0
        if self._dialect == "vllm":
            body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        else:
            body = {"content": text, "add_special": False, "parse_special": False}
        return self._counted(body, lambda: self._estimate.count(text))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text, a few concurrently."""
        with ThreadPoolExecutor(min(_TOGETHER, len(texts)) or 1) as pool:
            return list(pool.map(self.count, texts))

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of the prompt that the server's chat template makes."""
        if self._dialect != "vllm":  # the server counts only texts
            return conversation(self.count, messages)
        body = {"model": self._model, "messages": [_message(message) for message in messages]}
        return self._counted(body, lambda: self._estimate.count_messages(messages))

    def _counted(self, body: dict[str, Any], estimate: Callable[[], int]) -> int:
        import httpx2

        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:  # a lone surrogate, which JSON cannot encode
            return estimate()
        key = hashlib.sha256(content).digest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if not self.exact:
            return estimate()
        try:
            counted = self._ask(content)
        except (httpx2.HTTPError, ValueError, RecursionError, LookupError, TypeError) as error:
            self._rests_until = self._clock() + _REST
            _log.warning("the model server does not count tokens; estimating", model=self._model, error=str(error))
            return estimate()
        with self._lock:
            self._kept[key] = counted
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return counted

    def _ask(self, content: bytes) -> int:
        headers = {"content-type": "application/json"}
        if self._api_key is not None:
            headers["authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        response = self._http.post("/tokenize", content=content, headers=headers)
        response.raise_for_status()
        answer = msgspec.json.decode(response.content)
        counted = answer["count"] if self._dialect == "vllm" else len(answer["tokens"])
        if not isinstance(counted, int):
            raise TypeError("the count is no number")
        return counted


def _message(message: ChatMessage) -> dict[str, Any]:
    extra = msgspec.json.decode(message.extra_json) if message.extra_json else {}
    content = msgspec.Raw(message.content_json) if message.content_json else message.text
    return {**extra, "role": message.role, "content": content}
