"""BERT encoders against transformers, and MiniLM's real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import VOCABULARY, prompt, saved

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint, text_of
from onnx_iron.tools.download import MINILM, fetch_folder

TEXTS = [
    "A river runs to the sea.",
    "Ein Licht läuft über die Wellen, und keiner sieht es.",
    "The keeper wound the clock, trimmed the wick, cleaned the lamp, and wrote in the log that "
    "the wind blew from the north, that three ships had passed, and nothing else.",
]


def small_bert(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 2}
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        num_attention_heads=6,
        max_position_embeddings=64,
        **{**sizes, **changes},
    )
    model = transformers.BertModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.5 if weight.ndim == 1 else 0.0, 0.2)
    return model


@pytest.mark.parametrize("changes", [{}, {"hidden_act": "gelu_new"}, {"type_vocab_size": 1}])
@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("length", [1, 9, 40])
def test_a_text_of_any_length_has_the_rows_of_transformers(
    changes: dict[str, Any], provider: str, length: int, tmp_path: Path
) -> None:
    model = small_bert(**changes)
    folder = saved(model, tmp_path)
    export_checkpoint(open_checkpoint(folder), tmp_path / "out", dtype="float32", context=40)
    session = Session(tmp_path / "out", provider=provider)
    ids = prompt(length)
    kinds = (np.arange(length) % model.config.type_vocab_size).astype(np.int32)
    rows = session.run({"input_ids": ids, "token_type_ids": kinds})["last_hidden_state"]
    with torch.inference_mode():
        given = torch.tensor(ids[None]).long(), None, torch.tensor(kinds[None]).long()
        expected = model(*given).last_hidden_state[0].numpy()
    assert rows.shape == expected.shape
    assert np.abs(rows - expected).max() < 2e-5


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("lengths", [(9, 1, 4), (6, 6, 6), (40, 39, 2)])
def test_a_batch_of_texts_of_several_lengths_has_the_rows_of_transformers(
    lengths: tuple[int, ...], provider: str, tmp_path: Path
) -> None:
    model = small_bert()
    folder = saved(model, tmp_path)
    # As many rows as heads, too: the two must not be taken for one another.
    context = max(lengths)
    export_checkpoint(
        open_checkpoint(folder), tmp_path / "out", context=context, batch=3, dtype="float32"
    )
    session = Session(tmp_path / "out", provider=provider)
    mask = (np.arange(context) < np.array(lengths)[:, None]).astype(np.int32)
    ids = prompt(3 * context).reshape(3, context) * mask
    feeds = {"input_ids": ids, "token_type_ids": ids % 2, "attention_mask": mask}
    if provider == "iron":
        assert session.placement()["model"].complete
    rows = session.run(feeds)["last_hidden_state"]
    with torch.inference_mode():
        given = (torch.tensor(feeds[name]).long() for name in ("input_ids", "attention_mask"))
        kinds = torch.tensor(feeds["token_type_ids"]).long()
        expected = model(*given, kinds).last_hidden_state.numpy()
    assert rows.shape == expected.shape
    assert np.abs(rows - expected)[mask > 0].max() < 2e-5
    shorter = session.run({name: value[:, :2] for name, value in feeds.items()})
    assert shorter["last_hidden_state"].shape == (3, 2, 48)


def test_a_text_by_itself_has_the_bits_that_it_has_in_a_batch(tmp_path: Path) -> None:
    folder = saved(small_bert(), tmp_path)
    for batch in (None, 2):
        export_checkpoint(open_checkpoint(folder), tmp_path / str(batch), context=12, batch=batch)
    ids = prompt(24).reshape(2, 12)
    feeds = {"input_ids": ids, "token_type_ids": ids * 0, "attention_mask": ids * 0 + 1}
    both = Session(tmp_path / "2").run(feeds)["last_hidden_state"]
    alone = Session(tmp_path / "None")
    for text, rows in zip(ids, both, strict=True):
        own = alone.run({"input_ids": text, "token_type_ids": text * 0})["last_hidden_state"]
        np.testing.assert_array_equal(own, rows)


def test_a_text_longer_than_the_export_is_refused_and_never_cut(tmp_path: Path) -> None:
    folder = saved(small_bert(), tmp_path)
    export_checkpoint(open_checkpoint(folder), tmp_path / "out", context=8)
    session = Session(tmp_path / "out")
    ids = prompt(9)
    with pytest.raises(ValueError, match=r"9 rows, expected 8 at most: each row of .* depends on"):
        session.prefill(input_ids=ids, token_type_ids=ids * 0)
    with pytest.raises(ValueError, match=r"has shape \(9,\), expected"):
        session.run({"input_ids": ids, "token_type_ids": ids * 0})


@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.999999), ("bfloat16", 0.9995)])
def test_minilm_s_sentences_are_where_transformers_has_them(
    dtype: str, least: float, tmp_path: Path
) -> None:
    folder = fetch_folder(MINILM)
    export_checkpoint(open_checkpoint(folder), tmp_path, dtype=dtype, context=128)
    session, tokenizer = Session(tmp_path), text_of(tmp_path).tokenizer
    assert session.placement()["model"].complete
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for text in TEXTS:
        ids = tokenizer.encode(text, add_bos=True)
        assert ids == peer(text)["input_ids"]
        given = np.array(ids, np.int32)
        rows = session.run({"input_ids": given, "token_type_ids": given * 0})["last_hidden_state"]
        with torch.inference_mode():
            expected = model(torch.tensor([ids])).last_hidden_state[0].numpy()
        # The mean of all tokens, as sentence-transformers takes it.
        ours, theirs = rows.mean(0, np.float64), expected.mean(0, np.float64)
        cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert cosine >= least
