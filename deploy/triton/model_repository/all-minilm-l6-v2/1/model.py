"""Runs all-MiniLM-L6-v2 on onnxruntime: returns a unit vector of 384 dimensions for each text.

It reads ``model.onnx`` and ``tokenizer.json`` beside this file. The environment needs ``onnxruntime`` (1.23 or
newer) and ``tokenizers``.
"""

import os

import numpy as np
import onnxruntime
import tokenizers
import triton_python_backend_utils as pb_utils

_MAX_SEQUENCE = 256


def _has_vnni():
    """Return whether the CPU multiplies 8-bit integers into 32 bits."""
    with open("/proc/cpuinfo") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    return "avx512_vnni" in flags or "avx_vnni" in flags


class TritonPythonModel:
    """The class that Triton's python backend loads."""

    def initialize(self, args):
        """Load the graph for one thread. More instances of the model run in parallel."""
        directory = os.path.join(args["model_repository"], args["model_version"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        if not _has_vnni():
            # With exact 8-bit products, every CPU computes the same vectors. CPUs with VNNI compute exactly without
            # this option, which would double their time.
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(
            os.path.join(directory, "model.onnx"),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],
        )
        self._tokenizer = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
        self._tokenizer.enable_truncation(_MAX_SEQUENCE)
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def execute(self, requests):
        """Return a response for each request, with one vector for each text."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().reshape(-1)
        vectors = np.stack([self._vector(text.decode()) for text in texts])
        return pb_utils.InferenceResponse([pb_utils.Tensor("embedding", vectors)])

    def _vector(self, text):
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        return self._session.run(None, {"input_ids": ids})[0][0].astype(np.float32)
