"""The console command ``onnx-iron``: parses the command line, and turns failures into one line."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence

from onnx_iron import __version__
from onnx_iron.tools import (
    build_kernels,
    chat,
    conformance,
    demo,
    doctor,
    estimate,
    export,
    fuzz,
    generate,
    inspect_model,
    profile_model,
)

# The extra that installs a package.
_EXTRAS = {
    **dict.fromkeys(("gguf", "jinja2", "rich", "safetensors", "tokenizers"), "demo"),
    **dict.fromkeys(("hypothesis", "pytest", "scipy"), "conformance"),
    "matplotlib": "plot",
}
_INTERRUPTED = 130
# In the order in which they are listed.
COMMANDS = (
    *(demo, export, generate, chat, inspect_model, profile_model),
    *(build_kernels, conformance, fuzz, doctor, estimate),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv`` by default) and return its exit code.

    0 is success, 1 a failure that one line on stderr describes (with ``--debug``, and for a fault
    in the program itself, the traceback too), 2 a command line that doesn't parse, and 130 an
    interruption from the keyboard.
    """
    parsed = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        parsed.run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nonnx-iron: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone; let the interpreter's own flush at exit find no fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        return _failed(
            f"this command needs the package {package}; pip install "
            f"'onnx-iron[{_EXTRAS[package]}]'",
            parsed.debug,
        )
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        return _failed(str(error) or type(error).__name__, parsed.debug)
    except Exception as error:
        # onnxruntime's exceptions have no base class of their own.
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        return _failed(str(error), parsed.debug)
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(
        prog="onnx-iron", description="Export language models to ONNX with state, and run them."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers, common)
    return parser


def _failed(text: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"onnx-iron: error: {' '.join(text.split())}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
