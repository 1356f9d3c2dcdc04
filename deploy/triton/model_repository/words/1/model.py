"""A decoupled model that says the prompt's words again, at a set pace: text generation without weights.

It reads the inputs of the vLLM backend (``sampling_parameters`` as JSON) and those of TensorRT-LLM's ensemble
(a tensor each), whichever its configuration declares, and gives the outputs that the configuration declares.
Tokens are words, each with the white space before it.

Parameters of the configuration:
    pace: Seconds from one word to the next.
    journal: A file that gets a line of JSON when a request begins and ends, with the reason: ``stop``, ``length``,
        ``cancelled`` or ``failed``; times are of CLOCK_MONOTONIC, which processes share.
    fail_after: Fails after so many words.
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
_LOOK = 0.02


class TritonPythonModel:
    """What Triton's python backend loads."""

    def initialize(self, args):
        """Reads the configuration and starts the loop that all requests run on."""
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
        """Begins the answers; they go on while further requests come."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                wanted = Wanted(request)
            except (ValueError, TypeError) as error:
                self._note("refused", str(error))
                refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                sender.send(
                    pb_utils.InferenceResponse(error=refusal), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
                continue
            asyncio.run_coroutine_threadsafe(self._answer(wanted, sender), self._loop)

    def finalize(self):
        """Ends the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._journal:
            self._journal.close()

    async def _answer(self, wanted, sender):
        self._note("began", wanted.prompt)
        words = _WORD.findall(wanted.text)
        said, reason, count = "", "stop", 0
        for word in words:
            if count == wanted.most:
                reason = "length"
                break
            if count == self._fail_after:
                self._note("failed", said)
                failure = pb_utils.TritonError("the model lost its thread", pb_utils.TritonError.INTERNAL)
                sender.send(
                    pb_utils.InferenceResponse(error=failure), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
                return
            if self._pace:
                await self._pause(sender)
            elif not count % 64:
                await asyncio.sleep(0)
            if sender.is_cancelled():
                self._note("cancelled", said, count)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            said += word
            count += 1
            if wanted.stream:
                sender.send(self._response(word, "None", wanted.asked, 1))
        rest = "" if wanted.stream else said
        sender.send(
            self._response(rest, reason, wanted.asked, 0 if wanted.stream else count),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        )
        self._note(reason, said, count)

    async def _pause(self, sender):
        """Waits for the pace, and looks now and then whether anybody still listens."""
        left = self._pace
        while left > 0 and not sender.is_cancelled():
            await asyncio.sleep(min(left, _LOOK))
            left -= _LOOK

    def _response(self, text, reason, asked, said):
        values = {
            "text_output": np.array([text.encode()], dtype=object),
            "finish_reason": np.array([reason.encode()], dtype=object),
            "num_input_tokens": np.array([asked], dtype=np.uint32),
            "num_output_tokens": np.array([said], dtype=np.uint32),
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


class Wanted:
    """What a request asks for."""

    def __init__(self, request):
        parameters = json.loads(_text(request, "sampling_parameters", "{}"))
        self.prompt = _text(request, "text_input", "")
        self.stream = bool(_value(request, "stream", False))
        self.most = int(_value(request, "max_tokens", parameters.get("max_tokens", _DEFAULT_WORDS)))
        stops = _values(request, "stop_words") or parameters.get("stop") or []
        stops = [stops] if isinstance(stops, str) else [stop for stop in stops if stop]
        ends = [at for stop in stops if (at := self.prompt.find(stop)) >= 0]
        self.text = self.prompt[: min(ends, default=None)]
        self.asked = len(_WORD.findall(self.prompt))
        if self.most < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.most}.")


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
