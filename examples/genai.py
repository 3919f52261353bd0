"""A prompt continued by onnxruntime-genai on IronExecutionProvider.

    onnx-iron export CHECKPOINT -o out/ --genai
    pip install onnxruntime-genai
    python examples/genai.py out/ "Once upon a time" [TOKENS]

The text goes to stdout as it comes.
"""

from __future__ import annotations

import sys

import onnxruntime_genai as og

from onnx_iron import provider


def main(folder: str, prompt: str, tokens: int = 64) -> None:
    # Once a process; genai_config.json names the provider.
    og.register_execution_provider_library("onnx_iron", provider.get_library_path())
    model = og.Model(folder)
    tokenizer = og.Tokenizer(model)
    ids = tokenizer.encode(prompt)

    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(ids) + tokens)
    generator = og.Generator(model, params)
    generator.append_tokens(ids)
    stream = tokenizer.create_stream()
    while not generator.is_done():
        generator.generate_next_token()
        print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
