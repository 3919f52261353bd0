"""Language models that are driven token by token: ours, and those of whatever else is installed."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime

from onnx_iron import Session
from onnx_iron.tools.bench.measure import session_options
from onnx_iron.tools.bench.onnx_models import Size


class Talker(Protocol):
    """A model with a context, in which it is at a position."""

    @property
    def position(self) -> int:
        """How many tokens it took."""
        ...

    def prompt(self, count: int) -> None:
        """Take so many tokens at once, and give the logits of the last."""
        ...

    def token(self) -> None:
        """Take one token, and give its logits."""
        ...

    def rewind(self, position: int) -> None:
        """Go back to a position that was passed, or to the begin where that can't be."""
        ...


def go_to(talker: Talker, position: int) -> None:
    """Bring a model to a position."""
    if talker.position > position:
        talker.rewind(position)
    if talker.position < position:
        talker.prompt(position - talker.position)


def ids_of(begin: int, count: int, vocabulary: int) -> Any:
    """Tokens that are there in every vocabulary, at some positions."""
    return (np.arange(begin, begin + count) * 37) % min(vocabulary - 8, 40000) + 4


class OnnxIron:
    """A folder that our export wrote, on our provider or on plain onnxruntime."""

    def __init__(self, folder: Path, provider: str, threads: int, vocabulary: int) -> None:
        self._session = Session(folder, provider=provider, session_options=session_options(threads))
        self._vocabulary = vocabulary

    @property
    def position(self) -> int:
        return self._session.position

    def cache_width(self, context: int) -> int:
        """Elements that a token adds to the caches of so many."""
        shapes = [self._session.state(name).shape for name in self._session.states]
        return sum(math.prod(shape[1:]) for shape in shapes if shape[:1] == (context,))

    def prompt(self, count: int) -> None:
        ids = ids_of(self.position, count, self._vocabulary).astype(np.int32)
        self._session.prefill(input_ids=ids)

    def token(self) -> None:
        ids = ids_of(self.position, 1, self._vocabulary).astype(np.int32)
        self._session.decode(input_ids=ids)

    def rewind(self, position: int) -> None:
        try:
            self._session.rewind(self.position - position)
        except ValueError:  # what a convolution carries is of one position alone
            self._session.reset()


class SharedCaches:
    """A model with GroupQueryAttention, its caches as onnxruntime-genai binds them: one buffer for
    the past and the present."""

    def __init__(self, session: onnxruntime.InferenceSession, size: Size) -> None:
        self.position = 0
        self._session, self._size = session, size
        shape = (1, size.groups, size.context, size.head)
        self._caches = {
            f"{layer}.{what}": onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
            for layer in range(size.layers)
            for what in ("key", "value")
        }

    def prompt(self, count: int) -> None:
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        total = self.position + count
        binding = self._session.io_binding()
        ids = ids_of(self.position, count, self._size.vocabulary)[None].astype(np.int64)
        held = {
            "input_ids": value(ids),
            "seqlens_k": value(np.array([total - 1], np.int32)),
            "total_sequence_length": value(np.array(total, np.int32)),
        }
        for name, given in held.items():
            binding.bind_ortvalue_input(name, given)
        for name, cache in self._caches.items():
            binding.bind_ortvalue_input(f"past_key_values.{name}", cache)
            binding.bind_ortvalue_output(f"present.{name}", cache)
        binding.bind_output("logits")
        self._session.run_with_iobinding(binding)
        self.position = total

    def token(self) -> None:
        self.prompt(1)

    def rewind(self, position: int) -> None:
        self.position = position


class LlamaCpp:
    """A GGUF file in llama.cpp."""

    def __init__(self, file: Path, context: int, threads: int) -> None:
        self._library: Any = importlib.import_module("llama_cpp")
        self._model = self._library.Llama(
            str(file),
            n_ctx=context,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,
            verbose=False,
        )
        self._context = self._model._ctx.ctx
        self._memory = self._library.llama_get_memory(self._context)
        self.position = 0

    def prompt(self, count: int) -> None:
        ids = ids_of(self.position, count, self._model.n_vocab()).tolist()
        for begin in range(0, count, 512):
            part = ids[begin : begin + 512]
            array = (self._library.llama_token * len(part))(*part)
            batch = self._library.llama_batch_get_one(array, len(part))
            if self._library.llama_decode(self._context, batch) != 0:
                raise RuntimeError(f"llama.cpp failed at position {self.position + begin}")
        self._library.llama_get_logits_ith(self._context, -1)
        self.position += count

    def token(self) -> None:
        self.prompt(1)

    def rewind(self, position: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, -1, position, -1)
        self.position = position


class Transformers:
    """A checkpoint in transformers and torch, on the CPU."""

    def __init__(self, source: Path, dtype: str, threads: int) -> None:
        self._torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("transformers")
        self._torch.set_num_threads(threads)
        where = {"gguf_file": source.name} if source.is_file() else {}
        folder = source.parent if source.is_file() else source
        self._model = library.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(self._torch, dtype), **where
        ).eval()
        self._cache = library.DynamicCache()
        self.position = 0

    def prompt(self, count: int) -> None:
        ids = ids_of(self.position, count, self._model.config.vocab_size)[None]
        with self._torch.inference_mode():
            self._model(
                self._torch.from_numpy(ids),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self.position += count

    def token(self) -> None:
        self.prompt(1)

    def rewind(self, position: int) -> None:
        self._cache.crop(position - self.position)
        self.position = position


class Genai:
    """A folder of onnxruntime-genai's, on its CPU provider."""

    def __init__(self, folder: Path, context: int, vocabulary: int) -> None:
        self._library: Any = importlib.import_module("onnxruntime_genai")
        self._model = self._library.Model(str(folder))
        self._context, self._vocabulary = context, vocabulary
        self._begin()

    def _begin(self) -> None:
        options = self._library.GeneratorParams(self._model)
        options.set_search_options(max_length=self._context, do_sample=False)
        self._generator = self._library.Generator(self._model, options)
        self.position = 0

    def prompt(self, count: int) -> None:
        ids = ids_of(self.position, count, self._vocabulary).astype(np.int32)
        self._generator.append_tokens(ids[None])
        self.position += count

    def token(self) -> None:
        self.prompt(1)

    def rewind(self, position: int) -> None:
        if position == 0:
            self._begin()
        else:
            self._generator.rewind_to(position)
            self.position = position
