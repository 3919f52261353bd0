"""Which language models are measured against which others, and what a token of each takes."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.tools.bench.measure import Report, Work, open_model
from onnx_iron.tools.bench.onnx_models import Size, decoder, write
from onnx_iron.tools.bench.random_models import SHAPES, TINY, write_folder
from onnx_iron.tools.bench.talkers import (
    Genai,
    LlamaCpp,
    OnnxIron,
    SharedCaches,
    Talker,
    Transformers,
)
from onnx_iron.tools.download import smollm2

PEERS = ("stock", "llama.cpp", "genai", "torch")
TRAINED = "SmolLM2-135M"
# Bytes of an element.
WIDTHS = {"bfloat16": 2, "float32": 4}


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
    parser.add_argument(
        "--dtypes",
        default="bfloat16,float32",
        metavar="NAME,...",
        help="of ours; a large model's float32 takes room (default: %(default)s)",
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


def dtypes_of(arguments: argparse.Namespace) -> list[str]:
    """The names in ``--dtypes``.

    Raises:
        ValueError: one of them is unknown.
    """
    dtypes: list[str] = arguments.dtypes.split(",")
    if unknown := set(dtypes) - {*WIDTHS}:
        raise ValueError(f"--dtypes has {sorted(unknown)}, expected some of {', '.join(WIDTHS)}")
    return dtypes


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
        """Whom the ratios are to: plain onnxruntime, where it is measured, else ours."""
        others = (name for name in self.talkers if name.startswith("onnxruntime"))
        return next(others, next(iter(self.talkers)))

    def work(self, rows: int, position: int) -> dict[str, Work]:
        """What a call of so many rows takes, by candidate, about: weights and caches, each read
        once, and their products."""
        size, seen = self.size, position + (rows + 1) // 2
        head = size.width * size.vocabulary  # for the last row alone
        flops = 2.0 * rows * (self._elements - head) + 2.0 * head
        flops += 2.0 * rows * self._cache_width * seen * size.heads / max(size.groups, 1)
        elements = self._elements + self._cache_width * (position + rows)
        return {name: Work(flops, elements * width) for name, width in self._widths.items()}

    def _add(self, name: str, talker: Talker, width: int) -> None:
        self.talkers[name], self._widths[name] = talker, width

    def _ours(self) -> Size:
        checkpoint = open_checkpoint(self._source)
        size = Size.of(checkpoint.config, self._context)
        for dtype in dtypes_of(arguments := self._arguments):
            width = WIDTHS[dtype]
            folder = self._scratch / dtype
            chunk = min(arguments.chunk, self._context)
            made = export_checkpoint(
                checkpoint, folder, dtype=dtype, context=self._context, chunk=chunk
            )
            self._elements = made.total_bytes // width
            talker = OnnxIron(folder, "iron", arguments.threads, size.vocabulary)
            self._cache_width = talker.cache_width(self._context)
            self._add(f"onnx-iron {dtype}", talker, width)
        self._is_llama = checkpoint.family.model_type == "llama"
        return size

    def _stock(self) -> None:
        if not self._is_llama:
            # The same export's function bodies, whose states are copied in each call.
            folder = self._scratch / "float32"
            if not folder.is_dir():
                self._report.skip("stock", "it runs our float32 export, which --dtypes leaves out")
                return
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
