"""LFM2, or another checkpoint, from a folder to an answer, with the library alone.

``python examples/lfm2.py FOLDER "What is a river?"``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint, text_of
from onnx_iron.models.generation import generate
from onnx_iron.models.sampling import Sampler


def main(folder: str, prompt: str, context: int = 512) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        export_checkpoint(open_checkpoint(folder), scratch, context=context, chunk=64)
        session, text = Session(scratch), text_of(Path(scratch))
        tokenizer = text.tokenizer
        if text.template is None:
            ids = tokenizer.encode(prompt, add_bos=True, special=False)
        else:
            ids = text.template.encode([{"role": "user", "content": prompt}], tokenizer)
        stream = tokenizer.stream()

        def emit(token: int) -> None:
            print(stream.feed(token), end="", flush=True)

        generate(
            session,
            ids,
            max_tokens=64,
            context=context,
            end_ids=tokenizer.eos_ids,
            emit=emit,
            sampler=Sampler(text.settings, seed=0, known=tokenizer.ids()),
        )
        print(stream.finish())


if __name__ == "__main__":
    main(*sys.argv[1:3])
