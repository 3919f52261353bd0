"""SentencePiece's vocabularies, held to the package sentencepiece, and to llama.cpp where it is."""

from __future__ import annotations

import io
from typing import Any

import pytest
import sentencepiece
from gguf_files import CORPUS, NORMAL, UNUSED, USER_DEFINED, write_llama
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from onnx_iron.models.tokenizer import Tokenizer

FIRST_PIECE = 259  # after <unk>, <s>, </s> and the bytes
# Much of what a text may begin or end with, or repeat, and what merges and what has no token.
PARTS = ["the", " lamp", "keeper", "a", "e", "t", "h", "k", "1", ".", "é", "日", "😀", "\u3000"]
PARTS += ["\n", "\t", "\r\n", "\xa0", "▁", "<s>", "</s>", "<0x41>"]
PARTS += [" "] * 8
OWN = ["<think>", "a lamp", "  ", "    ", "\n\n", "\n\n\n"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=20).map("".join) | st.text(max_size=20)
EDGES = ["", " ", "  ", "▁", " ▁", "the lamp", " the lamp", "  the lamp", "the lamp  ", "a  b"]
EDGES += [" \n x", "\tx", "é 日"]


def train(**options: Any) -> Any:
    """A model of SentencePiece's own, as bytes can be parsed and changed."""
    written = io.BytesIO()
    usual = {
        "vocab_size": 450,
        "model_type": "bpe",
        "byte_fallback": True,
        "add_dummy_prefix": True,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in CORPUS.splitlines() if line] * 20),
        model_writer=written,
        **{**usual, **options},
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(written.getvalue())
    return model


def metadata(model: Any) -> dict[str, Any]:
    """A model's vocabulary as GGUF's converters write it."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.piece for piece in model.pieces],
        "tokenizer.ggml.scores": [float(piece.score) for piece in model.pieces],
        "tokenizer.ggml.token_type": [int(piece.type) for piece in model.pieces],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": model.normalizer_spec.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": model.normalizer_spec.remove_extra_whitespaces,
    }


def with_unused_and_equal_scores() -> Any:
    model = train()
    for index, piece in enumerate(model.pieces):
        if piece.type == NORMAL:
            piece.score = -float(index * 7 % 20)
            if index % 6 == 0 and len(piece.piece) > 1:
                piece.type = UNUSED
    return model


MODELS = {
    "as Llama's": train,
    "without bytes": lambda: train(byte_fallback=False),
    "without a space before": lambda: train(add_dummy_prefix=False),
    "extra spaces removed": lambda: train(remove_extra_whitespaces=True),
    "unused pieces, equal scores": with_unused_and_equal_scores,
}


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest) -> tuple[Tokenizer, Any]:
    """Our tokenizer and SentencePiece's, of one model."""
    model = MODELS[request.param]()
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return Tokenizer(metadata(model)), theirs


@pytest.mark.parametrize("text", EDGES, ids=ascii)
def test_spaces_at_the_ends_have_the_ids_that_sentencepiece_gives(both: Any, text: str) -> None:
    ours, theirs = both
    assert ours.encode(text, special=False) == theirs.encode(text)


@settings(max_examples=600)
@given(text=TEXTS)
def test_any_text_has_the_ids_that_sentencepiece_gives(both: Any, text: str) -> None:
    ours, theirs = both
    assert ours.encode(text, special=False) == theirs.encode(text)


@settings(max_examples=300)
@given(data=st.data())
def test_any_pieces_have_the_text_that_sentencepiece_gives(both: Any, data: st.DataObject) -> None:
    ours, theirs = both
    # Not <unk>, which is spelled otherwise, nor bytes, which SentencePiece marks one by one.
    first = FIRST_PIECE if theirs.is_byte(3) else 3
    piece = st.integers(1, 2) | st.integers(first, ours.vocab_size - 1)
    ids = data.draw(st.lists(piece, max_size=12))
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.fixture(scope="module", params=[True, False], ids=["space before", "no space before"])
def with_llama_cpp(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Any]:
    """Our tokenizer and llama.cpp's, of one file in which some tokens are the user's own: those of
    several spaces and line ends are as Gemma has them."""
    llama_cpp = pytest.importorskip("llama_cpp")
    vocabulary = metadata(train(add_dummy_prefix=request.param))
    for token in OWN:
        vocabulary["tokenizer.ggml.tokens"].append(token)
        vocabulary["tokenizer.ggml.scores"].append(0.0)
        vocabulary["tokenizer.ggml.token_type"].append(USER_DEFINED)
    path = write_llama(tmp_path_factory.mktemp("llama") / "model.gguf", vocabulary=vocabulary)
    return Tokenizer(vocabulary), llama_cpp.Llama(str(path), vocab_only=True, verbose=False)


@settings(max_examples=600)
@given(text=st.lists(st.sampled_from([*PARTS, *OWN]), max_size=20).map("".join))
@pytest.mark.parametrize("special", [True, False])
def test_any_text_has_the_ids_that_llama_cpp_gives(
    with_llama_cpp: Any, special: bool, text: str
) -> None:
    ours, theirs = with_llama_cpp
    expected = theirs.tokenize(text.encode(), add_bos=False, special=special)
    assert ours.encode(text, special=special) == expected


def test_a_control_token_is_followed_by_a_space_of_its_own() -> None:
    tokenizer = Tokenizer(metadata(train()))
    spelled = [tokenizer.token(i) for i in tokenizer.encode("the</s>the")]
    # llama.cpp's ids; to SentencePiece itself no text holds a control token.
    assert spelled == ["▁the", "</s>", "▁the"]
    assert tokenizer.token(tokenizer.encode("</s>", special=False)[0]) == "▁"
