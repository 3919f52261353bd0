"""onnxruntime-genai on our provider: its own builder's models, and what our export writes."""

from __future__ import annotations

import importlib.metadata
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from models_tokenizer import save_tokenizer

import onnx_iron
from onnx_iron import provider
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint

EP = "IronExecutionProvider"
CONTEXT, STEPS = 96, 12


def _importable() -> str:
    """Why genai can't be used here; empty where it can."""
    try:
        importlib.metadata.version("onnxruntime-genai")
    except importlib.metadata.PackageNotFoundError:
        return "the package onnxruntime-genai is not installed"
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    return "" if version >= (1, 31) else "onnxruntime-genai needs onnxruntime 1.31"


pytestmark = pytest.mark.skipif(bool(_importable()), reason=_importable() or "it is there")


@pytest.fixture(scope="module")
def og() -> Any:
    import onnxruntime_genai

    onnxruntime_genai.register_execution_provider_library("onnx_iron", provider.get_library_path())
    return onnxruntime_genai


@cache
def random_model(kind: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.2,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        random_model(kind).save_pretrained(folder)
        save_tokenizer(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def exported(checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(kind: str, dtype: str = "float32") -> Path:
        out = tmp_path_factory.mktemp("out")
        source = open_checkpoint(checkpoint(kind))
        export_checkpoint(source, out, dtype=dtype, context=CONTEXT, chunk=16, genai="iron")
        return out

    return make


@pytest.fixture(scope="module")
def built(checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of genai's own builder."""
    pytest.importorskip("onnx_ir", reason="genai's builder needs the package onnx-ir")

    @cache
    def make(kind: str, precision: str, device: str) -> Path:
        out, kept = (tmp_path_factory.mktemp(name) for name in ("built", "cache"))
        asked = {"-i": checkpoint(kind), "-o": out, "-p": precision, "-e": device, "-c": kept}
        command = [word for option, value in asked.items() for word in (option, str(value))]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["builder", *command])
            runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")
        return out

    return make


def opened(og: Any, folder: Path, name: str) -> Any:
    config = og.Config(str(folder))
    config.clear_providers()
    if name == "iron":
        config.append_provider(EP)
    return og.Model(config)


def prompt(length: int, seed: int = 0) -> list[int]:
    """Ids that end no text and are no padding."""
    return np.random.default_rng(seed).integers(3, 320, length).tolist()


def generator(og: Any, model: Any, **options: Any) -> Any:
    params = og.GeneratorParams(model)
    asked = {"max_length": CONTEXT, "min_length": CONTEXT, "do_sample": False}
    params.set_search_options(**{**asked, **options})
    return og.Generator(model, params)


def answer(made: Any, ids: list[int], steps: int = STEPS) -> list[list[int]]:
    """The tokens of each sequence after more ids of a prompt."""
    made.append_tokens(np.array(ids, np.int32))
    found = []
    for _ in range(steps):
        made.generate_next_token()
        found.append(np.array(made.get_next_tokens()).tolist())
    return [list(tokens) for tokens in zip(*found, strict=True)]


def greedy(kind: str, ids: list[int]) -> list[int]:
    """transformers' answer."""
    random_model(kind).generation_config.eos_token_id = None
    options = {"max_new_tokens": STEPS, "do_sample": False, "suppress_tokens": [2]}
    whole = random_model(kind).generate(torch.tensor([ids]), **options)
    return whole[0, len(ids) :].tolist()


@pytest.mark.parametrize("name", ["iron", "stock"])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_an_export_answers_as_transformers_does(
    kind: str, name: str, og: Any, exported: Any
) -> None:
    model = opened(og, exported(kind), name)
    for length in (1, 2, 17, 40):
        ids = prompt(length)
        assert answer(generator(og, model), ids) == [greedy(kind, ids)]


@pytest.mark.parametrize("name", ["iron", "stock"])
def test_prompts_of_two_lengths_are_answered_at_once(name: str, og: Any, exported: Any) -> None:
    model = opened(og, exported("Llama"), name)
    one, two = prompt(21), prompt(9, seed=1)
    both = answer(generator(og, model, batch_size=2), one + two + [0] * 12)
    assert both == [greedy("Llama", one), greedy("Llama", two)]


@pytest.mark.parametrize("name", ["iron", "stock"])
def test_a_text_is_taken_back_and_goes_on_otherwise(name: str, og: Any, exported: Any) -> None:
    model = opened(og, exported("Qwen3"), name)
    ids, other = prompt(11), prompt(6, seed=2)
    made = generator(og, model)
    answer(made, ids)
    made.rewind_to(7)
    assert answer(made, other) == [greedy("Qwen3", ids[:7] + other)]


@pytest.mark.parametrize(
    "options",
    [{"past_present_share_buffer": False}, {"chunk_size": 5}],
    ids=["growing caches", "a prompt in chunks"],
)
def test_caches_and_prompts_come_as_genai_likes(
    options: dict[str, Any], og: Any, exported: Any
) -> None:
    ids = prompt(23)
    model = opened(og, exported("Llama"), "iron")
    assert answer(generator(og, model, **options), ids) == [greedy("Llama", ids)]


def test_what_goes_on_and_what_searches_is_the_cpu_providers(og: Any, exported: Any) -> None:
    """More of a prompt after an answer, and beams, whose caches change places."""
    found = []
    for name in ("iron", "stock"):
        model = opened(og, exported("Llama"), name)
        made = generator(og, model)
        parts = [answer(made, prompt(length, length), 5) for length in (9, 4, 1)]
        beams = generator(og, model, num_beams=3, max_length=30, min_length=0)
        beams.append_tokens(np.array(prompt(8), np.int32))
        while not beams.is_done():
            beams.generate_next_token()
        found.append((parts, beams.get_sequence(0).tolist()))
    assert found[0] == found[1]


def test_in_bfloat16_an_export_answers_as_a_session_of_ours(og: Any, exported: Any) -> None:
    folder, ids = exported("Llama", "bfloat16"), prompt(19)
    session = onnx_iron.Session(folder)
    logits = session.prefill(input_ids=np.array(ids, np.int32))["logits"]
    tokens: list[int] = []
    while len(tokens) < STEPS:
        logits[..., 2] = -np.inf
        tokens.append(int(logits[-1].argmax()))
        logits = session.decode(input_ids=np.array(tokens[-1:], np.int32))["logits"]
    assert answer(generator(og, opened(og, folder, "iron")), ids) == [tokens]


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_a_model_of_genais_builder_answers_as_on_the_cpu_provider(
    kind: str, precision: str, og: Any, built: Any
) -> None:
    folder = built(kind, precision, "cpu")
    ours, theirs = (opened(og, folder, name) for name in ("iron", "stock"))
    for length in (1, 17, 40):
        ids = prompt(length)
        assert answer(generator(og, ours), ids) == answer(generator(og, theirs), ids)
    one, two = prompt(21), prompt(9, seed=1)
    both = [
        answer(generator(og, model, batch_size=2), one + two + [0] * 12) for model in (ours, theirs)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_its_models_in_bfloat16_run_whole_which_nothing_else_does(
    device: str, og: Any, built: Any
) -> None:
    """For a CPU it writes MultiHeadAttention, for others GroupQueryAttention."""
    folder = built("Llama", "bf16", device)
    with pytest.raises(RuntimeError, match="Could not find an implementation"):
        opened(og, folder, "stock")
    made, ids = generator(og, opened(og, folder, "iron")), prompt(25)
    found = []
    for more in (ids[:17], *([token] for token in ids[17:])):
        made.append_tokens(np.array(more, np.int32))
        found.append(np.array(made.get_logits()).reshape(-1))
    with torch.inference_mode():
        exact = random_model("Llama")(torch.tensor([ids])).logits[0, 16:].numpy()
    # transformers' own bfloat16 is 2 % of the logits' spread away from float32.
    assert np.sqrt(((np.stack(found) - exact) ** 2).mean()) < 0.05 * exact.std()


@pytest.mark.parametrize(("precision", "left"), [("fp32", []), ("int4", ["MatMulNBits"])])
def test_its_models_are_taken_but_for_what_is_faster_elsewhere(
    precision: str, left: list[str], built: Any
) -> None:
    onnx_iron.register()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(
        str(built("Llama", precision, "cpu") / "model.onnx"),
        options,
        providers=[EP, "CPUExecutionProvider"],
    )
    rows = onnx_iron.placement(session).rows
    found = {row.op_type: row.reason for row in rows if row.provider != EP}
    assert left == [name for name, reason in found.items() if "own kernel is faster" in reason]
    # What is between such products is left with them, a few nodes each.
    between = [reason for name, reason in found.items() if name not in left]
    assert all(
        "a switch from it costs more" in reason or "only a call knows" in reason
        for reason in between
    )
    assert left or not between


def test_the_example_writes_the_answers_text(og: Any, exported: Any) -> None:
    script = Path(__file__).parent.parent.parent / "examples" / "genai.py"
    command = [sys.executable, str(script), str(exported("Llama")), "A river", "10"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = opened(og, exported("Llama"), "iron")
    stream = og.Tokenizer(model).create_stream()
    ids = transformers.AutoTokenizer.from_pretrained(exported("Llama")).encode("A river")
    made = generator(og, model, min_length=0)
    (tokens,) = answer(made, ids, 10)
    assert done.stdout == "".join(map(stream.decode, tokens)) + "\n"


def test_two_onnxruntimes_in_a_process_each_have_the_provider(exported: Any) -> None:
    """genai brings a copy of its own; sessions of both are open when one forgets the library."""
    script = f"""
import numpy as np, onnxruntime, onnx_iron
import onnxruntime_genai as og
from onnx_iron import provider

def driven():
    model = og.Model({str(exported("Llama"))!r})
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=20, min_length=20)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([5, 6, 7], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist(), generator, model

def session():
    made = onnx_iron.Session({str(exported("Llama"))!r})
    return made, made.prefill(input_ids=np.array([5, 6, 7], np.int32))["logits"]

onnx_iron.register()
og.register_execution_provider_library("onnx_iron", provider.get_library_path())
kept = [session(), driven(), session(), driven()]
assert (kept[0][1] == kept[2][1]).all() and kept[1][0] == kept[3][0]
onnxruntime.unregister_execution_provider_library("onnx_iron")
assert driven()[0] == kept[1][0]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
