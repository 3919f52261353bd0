"""How long a session takes to open, and the memory that it then has, against the size of its files.

``python -m onnx_iron.tools.bench.load [--shapes SmolLM2-135M,...]``

Each session opens in a process of its own, with its files in the page cache. The memory is what is
resident after the first tokens more than before the session was opened.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.tools.bench.language import add_options, dtypes_of, peers_of, sources_of
from onnx_iron.tools.bench.measure import Report, open_model, parser_of
from onnx_iron.tools.bench.onnx_models import Size, decoder, write
from onnx_iron.tools.bench.talkers import LlamaCpp, OnnxIron, SharedCaches, Talker

CONTEXT = 512


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line a candidate."""
    parser = parser_of(__doc__, rounds=5)
    add_options(parser)
    arguments = parser.parse_args(given)
    report = Report(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in sources_of(arguments, Path(scratch)).items():
            with tempfile.TemporaryDirectory() as folder:
                _measure(arguments, report, name, source, Path(folder))
    report.end()


def _measure(
    arguments: argparse.Namespace, report: Report, name: str, source: Path, scratch: Path
) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    chosen = candidates_of(arguments, report, source, scratch)
    for _ in range(arguments.rounds):
        for candidate, request in chosen.items():
            command = [sys.executable, "-m", __spec__.name, "--one", json.dumps(request)]
            made = subprocess.run(command, check=True, capture_output=True, text=True)
            found.setdefault(candidate, []).append(json.loads(made.stdout.splitlines()[-1]))
    peer = next((c for c in found if c.startswith("onnxruntime")), next(iter(found)))
    seconds = {c: [one["seconds"] for one in each] for c, each in found.items()}
    memory = {c: [one["resident"] / one["files"] for one in each] for c, each in found.items()}
    report.add(f"{name} opened", seconds, peer, unit="s")
    report.add(f"{name} resident", memory, peer, unit="x files", found=found)


def candidates_of(
    arguments: argparse.Namespace, report: Report, source: Path, scratch: Path
) -> dict[str, dict[str, Any]]:
    """By a candidate's name what its process opens."""
    checkpoint = open_checkpoint(source)
    size = Size.of(checkpoint.config, CONTEXT)
    common = {
        "threads": arguments.threads,
        "vocabulary": size.vocabulary,
        "processor_time": arguments.processor_time,
    }
    chosen: dict[str, dict[str, Any]] = {}
    for dtype in dtypes_of(arguments):
        folder = scratch / dtype
        export_checkpoint(checkpoint, folder, dtype=dtype, context=CONTEXT, chunk=64)
        chosen[f"onnx-iron {dtype}"] = {"kind": "iron", "path": str(folder), **common}
    if checkpoint.family.model_type == "llama":
        path = write(decoder(size, "GroupQueryAttention"), scratch / "stock.onnx")
        chosen["onnxruntime GQA"] = {
            "kind": "stock",
            "path": str(path),
            "size": vars(size),
            **common,
        }
    else:
        report.skip("onnxruntime", "its model is made of a llama's shape alone")
    if "llama.cpp" in peers_of(arguments):
        if source.suffix != ".gguf":
            report.skip("llama.cpp", f"{source.name} is no GGUF file")
        else:
            from onnx_iron.tools.bench.gguf_dtypes import rewrite

            file = rewrite(source, scratch / "bf16.gguf", "BF16")
            chosen["llama.cpp bf16"] = {"kind": "llama.cpp", "path": str(file), **common}
            try:
                import llama_cpp  # type: ignore[import-not-found,unused-ignore] # noqa: F401
            except ModuleNotFoundError:
                report.skip("llama.cpp", "llama_cpp is not installed")
                del chosen["llama.cpp bf16"]
    return chosen


def open_one(request: dict[str, Any]) -> None:
    """Open what a request says, and print the seconds and the bytes."""
    import time

    import onnx_iron
    from onnx_iron.tools.machine import resident_bytes

    path, threads = Path(request["path"]), request["threads"]
    onnx_iron.register()
    if request["kind"] == "llama.cpp":
        import llama_cpp  # type: ignore[import-not-found,unused-ignore] # noqa: F401
    clock = time.process_time if request["processor_time"] else time.perf_counter
    before, begin = resident_bytes(), clock()
    talker: Talker
    if request["kind"] == "iron":
        talker = OnnxIron(path, "iron", threads, request["vocabulary"])
    elif request["kind"] == "stock":
        talker = SharedCaches(open_model(path, "stock", threads), Size(**request["size"]))
    else:
        talker = LlamaCpp(path, CONTEXT, threads)
    seconds = clock() - begin
    talker.prompt(8)
    for _ in range(4):
        talker.token()
    files = [path] if path.is_file() else list(path.iterdir())
    files += [path.with_name(path.name + ".data")] if request["kind"] == "stock" else []
    total = sum(file.stat().st_size for file in files)
    row = {"seconds": seconds, "resident": resident_bytes() - before, "files": total}
    print(json.dumps(row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        open_one(json.loads(sys.argv[2]))
    else:
        main()
