"""Language models as candidates: ours, and whatever else is installed, each at a position."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.tools.bench.measure import Report, Work, open_model, session_options
from onnx_iron.tools.bench.onnx_models import Size, decoder, write
from onnx_iron.tools.bench.random_models import SHAPES, TINY, write_folder
from onnx_iron.tools.download import smollm2

PEERS = ("stock", "llama.cpp", "genai", "torch")
TRAINED = "SmolLM2-135M"


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
        """Go back to a position that was passed."""
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

    def prompt(self, count: int) -> None:
        ids = ids_of(self.position, count, self._vocabulary).astype(np.int32)
        self._session.prefill(input_ids=ids)

    def token(self) -> None:
        ids = ids_of(self.position, 1, self._vocabulary).astype(np.int32)
        self._session.decode(input_ids=ids)

    def rewind(self, position: int) -> None:
        if position == 0:
            self._session.reset()
        else:
            self._session.rewind(self.position - position)


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add which models are measured, and against whom."""
    parser.add_argument(
        "--shapes",
        default=TRAINED,
        metavar="NAME,...",
        help=f"of {', '.join(SHAPES)}: random weights, but {TRAINED}'s, which are fetched "
        "(default: %(default)s)",
    )
    parser.add_argument("--model", type=Path, help="a GGUF file or Hugging Face folder instead")
    parser.add_argument(
        "--peers",
        default=",".join(PEERS),
        metavar="NAME,...",
        help="what is measured beside ours, where it is installed (default: %(default)s)",
    )
    parser.add_argument("--genai", type=Path, metavar="DIR", help="genai's model of the same shape")
    parser.add_argument("--chunk", type=int, default=512, help="of ours (default: %(default)s)")


def peers_of(arguments: argparse.Namespace) -> list[str]:
    """The names in ``--peers``.

    Raises:
        ValueError: one of them is unknown.
    """
    peers = [name for name in arguments.peers.split(",") if name]
    if unknown := set(peers) - {*PEERS}:
        raise ValueError(f"--peers has {sorted(unknown)}, expected some of {', '.join(PEERS)}")
    return peers


def sources_of(arguments: argparse.Namespace, scratch: Path) -> dict[str, Path]:
    """By a model's name its checkpoint, which is made where it is of random weights."""
    if arguments.model is not None:
        return {arguments.model.stem: arguments.model}
    if arguments.quick:
        write_folder(scratch / "tiny", TINY)
        return {"tiny": scratch / "tiny"}
    found = {}
    for name in arguments.shapes.split(","):
        if name == TRAINED:
            found[name] = smollm2(None)
            continue
        if name not in SHAPES:
            raise ValueError(f"--shapes has {name!r}, expected some of {', '.join(SHAPES)}")
        write_folder(scratch / name, SHAPES[name])
        found[name] = scratch / name
    return found


class Field:
    """All candidates for a checkpoint, each with what a token at a position takes.

    Args:
        context: tokens that each has room for.
        scratch: a folder for what is exported.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        report: Report,
        source: Path,
        context: int,
        scratch: Path,
    ) -> None:
        self._arguments, self._report, self._context = arguments, report, context
        self._scratch, self._source = scratch, source
        self.talkers: dict[str, Talker] = {}
        # Bytes of an element of the weights and of the cache.
        self._widths: dict[str, int] = {}
        self.size = self._ours()
        peers = peers_of(arguments)
        opened: dict[str, Callable[[], None]] = {
            "stock": self._stock,
            "llama.cpp": self._llama_cpp,
            "genai": self._genai,
            "torch": self._torch,
        }
        for peer in peers:
            try:
                opened[peer]()
            except ModuleNotFoundError as error:
                report.skip(peer, f"{error.name} is not installed")

    @property
    def peer(self) -> str:
        """Whom the ratios are to: plain onnxruntime, where it is measured."""
        return next((name for name in self.talkers if name.startswith("onnxruntime")), "none")

    def work(self, rows: int, position: int) -> dict[str, Work]:
        """What a call of so many rows takes, by candidate, about: weights and caches, each read
        once, and their products."""
        size, seen = self.size, position + (rows + 1) // 2
        head = size.width * size.vocabulary  # for the last row alone
        flops = 2.0 * rows * (self._elements - head) + 2.0 * head
        flops += 2.0 * rows * size.cached(seen) * size.heads / max(size.groups, 1)
        elements = self._elements + size.cached(position + rows)
        return {name: Work(flops, elements * width) for name, width in self._widths.items()}

    def _add(self, name: str, talker: Talker, width: int) -> None:
        self.talkers[name], self._widths[name] = talker, width

    def _ours(self) -> Size:
        checkpoint = open_checkpoint(self._source)
        size = Size.of(checkpoint.config, self._context)
        for dtype, width in (("bfloat16", 2), ("float32", 4)):
            folder = self._scratch / dtype
            chunk = min(self._arguments.chunk, self._context)
            made = export_checkpoint(
                checkpoint, folder, dtype=dtype, context=self._context, chunk=chunk
            )
            self._elements = made.total_bytes // width
            talker = OnnxIron(folder, "iron", self._arguments.threads, size.vocabulary)
            self._add(f"onnx-iron {dtype}", talker, width)
        self._is_llama = checkpoint.family.model_type == "llama"
        return size

    def _stock(self) -> None:
        if not self._is_llama:
            # The same export's function bodies, whose states are copied in each call.
            folder = self._scratch / "float32"
            talker = OnnxIron(folder, "stock", self._arguments.threads, self.size.vocabulary)
            self._add("onnxruntime bodies", talker, 4)
            return
        path = write(decoder(self.size, "GroupQueryAttention"), self._scratch / "stock.onnx")
        session = open_model(path, "stock", self._arguments.threads)
        self._add("onnxruntime GQA", SharedCaches(session, self.size), 4)

    def _llama_cpp(self) -> None:
        if self._source.suffix != ".gguf":
            self._report.skip("llama.cpp", f"{self._source.name} is no GGUF file")
            return
        importlib.import_module("llama_cpp")
        from onnx_iron.tools.bench.gguf_dtypes import rewrite

        for dtype in ("BF16", "F16"):
            file = rewrite(self._source, self._scratch / f"{dtype}.gguf", dtype)
            talker = LlamaCpp(file, self._context, self._arguments.threads)
            self._add(f"llama.cpp {dtype.lower()}", talker, 2)

    def _genai(self) -> None:
        if self._arguments.genai is None:
            self._report.skip("genai", "no --genai DIR, a folder of its model builder")
            return
        talker = Genai(self._arguments.genai, self._context, self.size.vocabulary)
        self._add(f"genai {self._arguments.genai.name}", talker, 4)

    def _torch(self) -> None:
        self._add(
            "transformers float32",
            Transformers(self._source, "float32", self._arguments.threads),
            4,
        )
