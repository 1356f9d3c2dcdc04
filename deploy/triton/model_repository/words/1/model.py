"""A decoupled model that repeats the words of the prompt at a fixed rate: text generation without weights.

It reads the inputs that its configuration declares: those of the vLLM backend (``sampling_parameters`` as JSON), or
those of TensorRT-LLM's ensemble (one tensor for each parameter). It sends the outputs that the configuration
declares. A token is a word with the white space before it.

Parameters of the configuration:
    pace: Seconds between two words.
    journal: A file to which the model appends a line of JSON when a request begins (``began``), when it ends
        (``stop``, ``length``, ``cancelled``, ``failed``), and when it is refused (``refused``). Times are those of
        CLOCK_MONOTONIC, which all processes share.
    fail_after: The number of words after which a request fails.
"""

import asyncio
import json
import re
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

_WORD = re.compile(r"\s*\S+|\s+")
_DEFAULT_WORDS = 16
_CHECK_SECONDS = 0.02


class TritonPythonModel:
    """The class that Triton's python backend loads."""

    def initialize(self, args):
        """Read the configuration and start the event loop of all requests."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        self._pace = float(parameters.get("pace", 0))
        self._fail_after = int(parameters.get("fail_after", -1))
        self._journal = open(parameters["journal"], "a", buffering=1) if parameters.get("journal") else None  # noqa: SIM115  # closed by finalize
        self._outputs = {output["name"] for output in config["output"]}
        self._batched = config["max_batch_size"] > 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def execute(self, requests):
        """Start the answers, which continue while Triton passes further requests."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                generation = Generation(request)
            except (ValueError, TypeError) as error:
                self._note("refused", str(error))
                refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                sender.send(
                    pb_utils.InferenceResponse(error=refusal), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
                continue
            asyncio.run_coroutine_threadsafe(self._answer(generation, sender), self._loop)

    def finalize(self):
        """Stop the event loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._journal:
            self._journal.close()

    async def _answer(self, generation, sender):
        self._note("began", generation.prompt)
        words = _WORD.findall(generation.text)
        answer, reason, count = "", "stop", 0
        for word in words:
            if count == generation.max_words:
                reason = "length"
                break
            if count == self._fail_after:
                self._note("failed", answer)
                failure = pb_utils.TritonError("the model failed", pb_utils.TritonError.INTERNAL)
                sender.send(
                    pb_utils.InferenceResponse(error=failure), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
                return
            if self._pace:
                await self._pause(sender)
            elif not count % 64:
                await asyncio.sleep(0)
            if sender.is_cancelled():
                self._note("cancelled", answer, count)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            answer += word
            count += 1
            if generation.stream:
                sender.send(self._response(word, "None", generation.prompt_words, 1))
        rest = "" if generation.stream else answer
        sender.send(
            self._response(rest, reason, generation.prompt_words, 0 if generation.stream else count),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        )
        self._note(reason, answer, count)

    async def _pause(self, sender):
        """Wait until the next word; return early if the client has cancelled the request."""
        left = self._pace
        while left > 0 and not sender.is_cancelled():
            await asyncio.sleep(min(left, _CHECK_SECONDS))
            left -= _CHECK_SECONDS

    def _response(self, text, reason, prompt_words, answer_words):
        values = {
            "text_output": np.array([text.encode()], dtype=object),
            "finish_reason": np.array([reason.encode()], dtype=object),
            "num_input_tokens": np.array([prompt_words], dtype=np.uint32),
            "num_output_tokens": np.array([answer_words], dtype=np.uint32),
        }
        tensors = [
            pb_utils.Tensor(name, value.reshape(1, -1) if self._batched else value)
            for name, value in values.items()
            if name in self._outputs
        ]
        return pb_utils.InferenceResponse(tensors)

    def _note(self, what, text, count=0):
        if self._journal:
            entry = {"event": what, "at": time.monotonic(), "text": text, "count": count}
            self._journal.write(json.dumps(entry) + "\n")


class Generation:
    """The parameters of a request."""

    def __init__(self, request):
        parameters = json.loads(_text(request, "sampling_parameters", "{}"))
        self.prompt = _text(request, "text_input", "")
        self.stream = bool(_value(request, "stream", False))
        self.max_words = int(_value(request, "max_tokens", parameters.get("max_tokens", _DEFAULT_WORDS)))
        stops = _values(request, "stop_words") or parameters.get("stop") or []
        stops = [stops] if isinstance(stops, str) else [stop for stop in stops if stop]
        ends = [at for stop in stops if (at := self.prompt.find(stop)) >= 0]
        self.text = self.prompt[: min(ends, default=None)]
        self.prompt_words = len(_WORD.findall(self.prompt))
        if self.max_words < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_words}.")


def _values(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return []
    return [value.decode() if isinstance(value, bytes) else value for value in tensor.as_numpy().reshape(-1)]


def _value(request, name, default):
    values = _values(request, name)
    return values[0] if values else default


def _text(request, name, default):
    return str(_value(request, name, default))
