"""A decoder with random weights that serves many streams at once, by continuous batching.

All streams share each step. A new stream gets a free slot, and then one token per step. A separate thread sends the
tokens of a step while the next step runs. The tokens of the prompt are its last 16 bytes, and the tokens of the
answer have the form ``w<number>``. The text is meaningless, but the costs are those of a real decoder.

Parameter of the configuration:
    size: ``billion`` (0.94 billion parameters, bfloat16, a GPU) or ``tiny`` (for trials on a CPU).
"""

import json
import queue
import threading
from dataclasses import dataclass

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from torch import nn
from torch.nn import functional

SLOTS = 64
MAX_PROMPT = 16
MAX_LENGTH = 1024


@dataclass(frozen=True)
class Shape:
    """The dimensions of the weights."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int


SHAPES = {"billion": Shape(16, 2048, 16, 8192, 32_000), "tiny": Shape(2, 128, 4, 512, 1_000)}


class Layer(nn.Module):
    """A transformer layer: attention to the stream's earlier tokens, and a feed-forward network."""

    def __init__(self, shape, device, dtype):
        super().__init__()
        options = {"bias": False, "device": device, "dtype": dtype}
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width, device=device, dtype=dtype)
        self.feed_forward_norm = nn.LayerNorm(shape.width, device=device, dtype=dtype)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, **options)
        self.projection = nn.Linear(shape.width, shape.width, **options)
        self.up = nn.Linear(shape.width, shape.hidden, **options)
        self.down = nn.Linear(shape.hidden, shape.width, **options)
        cache = (SLOTS, shape.heads, MAX_LENGTH, shape.width // shape.heads)
        self.keys = torch.zeros(cache, device=device, dtype=dtype)
        self.values = torch.zeros(cache, device=device, dtype=dtype)

    def forward(self, x, slots, positions, length, mask):
        """Process one token of each slot with the last ``length`` positions."""
        query, key, value = self.query_key_value(self.attention_norm(x)).view(SLOTS, 3, self.heads, -1).unbind(1)
        self.keys[slots, :, positions] = key
        self.values[slots, :, positions] = value
        attended = functional.scaled_dot_product_attention(
            query.unsqueeze(2), self.keys[:, :, :length], self.values[:, :, :length], attn_mask=mask
        )
        x = x + self.projection(attended.reshape(SLOTS, -1))
        return x + self.down(functional.gelu(self.up(self.feed_forward_norm(x))))


class Decoder(nn.Module):
    """Computes the next token of all slots from the current tokens and their positions."""

    def __init__(self, shape, device, dtype):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width, device=device, dtype=dtype)
        self.positions = nn.Embedding(MAX_LENGTH, shape.width, device=device, dtype=dtype)
        self.layers = nn.ModuleList(Layer(shape, device, dtype) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False, device=device, dtype=dtype)
        self.slots = torch.arange(SLOTS, device=device)
        self.cached = torch.arange(MAX_LENGTH, device=device)

    @torch.inference_mode()
    def forward(self, tokens, positions, length):
        """Return the most likely next tokens."""
        mask = (self.cached[:length] <= positions[:, None])[:, None, None, :]
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = layer(x, self.slots, positions, length, mask)
        return self.head(x).argmax(-1)


class Stream:
    """A request in its slot."""

    def __init__(self, request):
        self.sender = request.get_response_sender()
        prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
        parameters = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
        sampling = json.loads(parameters.as_numpy()[0]) if parameters is not None else {}
        self.prompt = list(prompt[-MAX_PROMPT:])
        self.max_tokens = min(int(sampling.get("max_tokens", 16)), MAX_LENGTH - MAX_PROMPT)
        self.position = 0
        self.generated = 0
        self.token = self.prompt[0]

    @property
    def done(self):
        """Return whether all tokens are generated."""
        return self.generated == self.max_tokens


class TritonPythonModel:
    """The class that Triton's python backend loads."""

    def initialize(self, args):
        """Create the weights, and start the threads."""
        parameters = json.loads(args["model_config"])["parameters"]
        size = parameters["size"]["string_value"]
        self._device = "cuda" if size != "tiny" else "cpu"
        torch.manual_seed(0)
        if self._device == "cpu":
            torch.set_num_threads(1)
        self._decoder = Decoder(SHAPES[size], self._device, torch.bfloat16 if size != "tiny" else torch.float32)
        count = sum(each.numel() for each in self._decoder.parameters())
        pb_utils.Logger.log_info(f"decoder of {count / 1e6:.0f} million parameters on {self._device}")
        self._waiting = queue.SimpleQueue()
        self._sending = queue.SimpleQueue()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._decode), threading.Thread(target=self._send)]
        for thread in self._threads:
            thread.start()

    def execute(self, requests):
        """Queue the streams for the next step."""
        for request in requests:
            self._waiting.put(Stream(request))

    def finalize(self):
        """End the threads."""
        self._ended.set()
        self._waiting.put(None)
        self._sending.put(None)
        for thread in self._threads:
            thread.join()

    def _decode(self):
        streams = [None] * SLOTS
        while not self._ended.is_set():
            self._fill_slots(streams)
            active = [(slot, stream) for slot, stream in enumerate(streams) if stream is not None]
            if not active:
                continue
            tokens, positions = [0] * SLOTS, [0] * SLOTS
            for slot, stream in active:
                tokens[slot], positions[slot] = stream.token, stream.position
            # Lengths are multiples of 128, so that the same kernels run again.
            length = min(MAX_LENGTH, (max(positions) // 128 + 1) * 128)
            next_tokens = self._decoder(
                torch.tensor(tokens, device=self._device), torch.tensor(positions, device=self._device), length
            ).tolist()
            for slot, stream in active:
                stream.position += 1
                if stream.position < len(stream.prompt):
                    stream.token = stream.prompt[stream.position]
                    continue
                stream.token = next_tokens[slot]
                stream.generated += 1
                self._sending.put((stream, stream.token, stream.done))
                if stream.done or stream.sender.is_cancelled():
                    if not stream.done:
                        self._sending.put((stream, None, True))
                    streams[slot] = None

    def _fill_slots(self, streams):
        """Fill free slots with waiting streams; without any stream, wait for the next one."""
        for slot in range(SLOTS):
            if streams[slot] is None:
                idle = not any(streams)
                try:
                    streams[slot] = self._waiting.get(block=idle)
                except queue.Empty:
                    return
                if streams[slot] is None:
                    return

    def _send(self):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        while (sent := self._sending.get()) is not None:
            stream, token, last = sent
            if token is None:
                stream.sender.send(flags=final)
                continue
            outputs = [
                pb_utils.Tensor("text_output", np.array([f"w{token} ".encode()], dtype=object)),
                pb_utils.Tensor("finish_reason", np.array([b"length" if last else b"None"], dtype=object)),
                pb_utils.Tensor("num_input_tokens", np.array([len(stream.prompt)], np.uint32)),
                pb_utils.Tensor("num_output_tokens", np.array([1], np.uint32)),
            ]
            stream.sender.send(pb_utils.InferenceResponse(outputs), flags=final if last else 0)
