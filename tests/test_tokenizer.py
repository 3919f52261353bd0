"""The tokenizers that GGUF files describe, held to those that transformers builds from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf_files import (
    TEMPLATE,
    byte_level_vocabulary,
    sentencepiece_vocabulary,
    write_llama,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from onnx_iron.models.chat import ChatTemplate, chat_template
from onnx_iron.models.gguf import GGUFCheckpoint
from onnx_iron.models.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "   ",
    "hello",
    " hello",
    "  two spaces  and   three ",
    "trailing \n",
    "a\n\nb\r\n\r\n\tc \n d",
    "1", "12", "1234567", " 12", "  12", "\n\n3", "a1b22c333", "½ ² Ⅷ ٣",
    "It's we've DON'T I'll they'd",
    "Über naïve déjà-vu e\u0301",
    "На берегу стоит маяк",  # noqa: RUF001
    "灯台の光が見える。",
    "😀👍🏽 👩‍👩‍👧 🏳️‍🌈",
    "\x00\x01\x7f\u200b\ufeff\u00a0",
    "<|im_start|>user\nhello<|im_end|>\n",
    " <|im_end|> <|im_end|>x<|endoftext|>",
    "<think> </think> <|im_start|",
    "<s> </s><unk> <0x41>",
    "\U0010ffff \U0003fffd",
    "def f(x):\n    return x ** 2  # squared\n",
    "▁▁ under▁score",
]  # fmt: skip
DIGITS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
)


def pair(folder: Path, vocabulary: dict[str, Any], name: str = "model.gguf") -> tuple[Any, Any]:
    """Our tokenizer and transformers', from one file."""
    path = write_llama(folder / name, vocabulary=vocabulary)
    return built(path)


def built(path: Path) -> tuple[Tokenizer, Any]:
    theirs = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    metadata = GGUFCheckpoint(path).metadata
    if metadata.get("tokenizer.ggml.pre") == "smollm":
        # Transformers doesn't know the name; this is what the model's own tokenizer.json has.
        theirs.backend_tokenizer.pre_tokenizer = DIGITS
    return Tokenizer(metadata, str(path)), theirs


# What transformers makes of a SentencePiece vocabulary in a GGUF file loses leading spaces.
KINDS = ["smollm", "gpt-2", "qwen2", "llama-bpe", "SmolLM2"]


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "SmolLM2":
        return built(request.getfixturevalue("smollm2"))
    return pair(folder, {**byte_level_vocabulary(), "tokenizer.ggml.pre": request.param})


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = write_llama(tmp_path_factory.mktemp("tokenizer") / "model.gguf")
    return Tokenizer(GGUFCheckpoint(path).metadata, "model.gguf")


@pytest.fixture(scope="module")
def spm() -> Tokenizer:
    return Tokenizer(sentencepiece_vocabulary())


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_has_the_ids_that_transformers_gives(both: Any, text: str) -> None:
    ours, theirs = both
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


@settings(max_examples=400, deadline=None)
@given(text=st.text(max_size=60) | st.text("aeth kpr'lm 019 \n\t\r.,", max_size=60))
def test_any_text_has_the_ids_that_transformers_gives(both: Any, text: str) -> None:
    ours, theirs = both
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_ids_have_the_text_that_transformers_gives(both: Any, data: st.DataObject) -> None:
    ours, theirs = both
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size - 1), max_size=30))
    for skip in (False, True):
        text = ours.decode(ids, skip_special=skip)
        expected = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        assert text == expected


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60))
def test_decoding_gives_back_what_was_encoded(spm: Tokenizer, smollm: Tokenizer, text: str) -> None:
    assert smollm.decode(smollm.encode(text), skip_special=False) == text
    # SentencePiece spells a space as U+2581, so the two can't be told apart.
    assert spm.decode(spm.encode(text), skip_special=False) == text.replace("▁", " ")


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_a_stream_gives_whole_characters_only(spm: Tokenizer, smollm: Tokenizer, text: str) -> None:
    whole = text.replace("\ufffd", "")
    for tokenizer in (spm, smollm):
        ids = tokenizer.encode(whole)
        stream = tokenizer.stream(skip_special=False)
        pieces = [stream.feed(index) for index in ids]
        assert not any("\ufffd" in piece for piece in pieces)
        assert stream.finish() == ""
        assert "".join(pieces) == tokenizer.decode(ids, skip_special=False)


def test_a_stream_that_ends_inside_a_character_says_so_once(smollm: Tokenizer) -> None:
    ids = smollm.encode("\U0003fffd")
    assert len(ids) == 4
    stream = smollm.stream()
    assert [stream.feed(index) for index in ids[:-1]] == ["", "", ""]
    assert stream.finish() == "\ufffd"


def test_ends_are_those_of_the_file_and_the_names_of_chat_models(smollm: Tokenizer) -> None:
    assert {smollm.token(index) for index in smollm.eos_ids} == {"<|im_end|>", "<|endoftext|>"}


def test_bos_comes_first_only_where_the_model_wants_it(smollm: Tokenizer, spm: Tokenizer) -> None:
    assert smollm.encode("x", add_bos=True) == smollm.encode("x")
    assert spm.encode("x", add_bos=True) == [1, *spm.encode("x")]
    metadata = {**byte_level_vocabulary(), "tokenizer.ggml.pre": "llama-bpe"}
    del metadata["tokenizer.ggml.add_bos_token"]
    llama3 = Tokenizer(metadata)
    assert llama3.encode("x", add_bos=True)[0] == llama3.bos_id == 1


def test_a_file_that_names_no_pre_tokenizer_has_the_default_one() -> None:
    vocabulary = byte_level_vocabulary()
    default = Tokenizer({**vocabulary, "tokenizer.ggml.pre": "default"})
    unnamed = {key: value for key, value in vocabulary.items() if key != "tokenizer.ggml.pre"}
    for text in TEXTS:
        assert default.encode(text) == Tokenizer(unnamed).encode(text)
        assert default.decode(default.encode(text), skip_special=False) == text


@pytest.mark.parametrize("pre", ["refact", "starcoder", "dbrx", "smaug-bpe"])
def test_a_text_has_the_ids_that_llama_cpp_gives(pre: str, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    vocabulary = {**byte_level_vocabulary(), "tokenizer.ggml.pre": pre}
    path = write_llama(tmp_path / "model.gguf", vocabulary=vocabulary)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    ours = Tokenizer(vocabulary)
    for text in TEXTS:
        expected = theirs.tokenize(text.encode(), add_bos=False, special=False)
        assert ours.encode(text, special=False) == expected, text


def test_a_lone_surrogate_is_encoded_as_a_replacement_character(smollm: Tokenizer) -> None:
    assert smollm.encode("a\ud800b") == smollm.encode("a\ufffdb")


def test_an_id_outside_the_vocabulary_is_refused(smollm: Tokenizer) -> None:
    for index in (-1, smollm.vocab_size):
        with pytest.raises(ValueError, match=rf"token id is {index}, expected 0..\d+"):
            smollm.decode([index])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "t5"}, "model is 't5', expected 'gpt2' or 'llama'"),
        ({"model": None}, "'tokenizer.ggml.model' is missing"),
        ({"pre": "poro-chat"}, r"pre is 'poro-chat', expected one of default, gpt-2"),
        ({"tokens": None}, "tokens' is missing"),
        ({"tokens": [1, 2]}, "tokens holds int, expected str"),
        ({"tokens": ["a", "a"]}, "has 2 entries, and 1 repeat another"),
        ({"token_type": [1]}, r"token_type has 1 entries, expected \d+, one for each"),
        ({"merges": None}, "merges' is missing"),
        ({"merges": ["nospace"]}, r"merges\[0\] is 'nospace', expected two tokens"),
        ({"merges": ["zzzz yyyy"]}, r"merges\[0\] is 'zzzz yyyy'"),
        ({"eos_token_id": 60000}, r"eos_token_id is 60000, expected 0..\d+"),
        ({"add_bos_token": 1}, "add_bos_token is of type int, expected bool"),
        ({"add_bos_token": True, "bos_token_id": None}, "bos_token_id is missing, expected both"),
    ],
)
def test_a_vocabulary_that_makes_no_tokenizer_is_refused(
    change: dict[str, Any], message: str
) -> None:
    metadata = dict(byte_level_vocabulary())
    for name, value in change.items():
        metadata[f"tokenizer.ggml.{name}"] = value
    with pytest.raises(ValueError, match=rf"bad.gguf: .*{message}"):
        Tokenizer({k: v for k, v in metadata.items() if v is not None}, "bad.gguf")


def test_a_sentencepiece_vocabulary_needs_scores_and_spelled_bytes() -> None:
    metadata = dict(sentencepiece_vocabulary())
    del metadata["tokenizer.ggml.scores"]
    with pytest.raises(ValueError, match=r"'tokenizer.ggml.scores' is missing"):
        Tokenizer(metadata)
    metadata = dict(sentencepiece_vocabulary())
    metadata["tokenizer.ggml.tokens"] = list(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"][3] = "zero"
    with pytest.raises(ValueError, match=r"token 3 is 'zero' and has the type of a byte"):
        Tokenizer(metadata)


CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "hello"}],
    [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": " <b>&  x "}],
    [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "émoji 😀 <|im_end|>"},
    ],
]


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_a_chat_has_the_ids_that_transformers_gives(
    both: Any, messages: list[dict[str, str]], add_generation_prompt: bool
) -> None:
    ours, theirs = both
    # A file with a template, or the usual one.
    source = theirs.chat_template or TEMPLATE
    text = ChatTemplate(source).render(messages, add_generation_prompt=add_generation_prompt)
    expected = theirs.apply_chat_template(
        messages,
        chat_template=source,
        add_generation_prompt=add_generation_prompt,
        tokenize=False,
    )
    assert text == expected
    assert ours.encode(text) == theirs.encode(expected, add_special_tokens=False)


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }}{% for m in messages %}\n  {% if loop.first %}{{ m.content }}{% endif %}\n"
        "{% endfor %}",
        "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}",
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}"
        "{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% if tools is not none %}tools{% endif %}{{ undefined_name }}|{{ eos_token }}",
        "{%- for m in messages -%}\n {{ m['content'] | trim }} \n{%- endfor -%}",
    ],
)
def test_a_template_renders_as_in_transformers(both: Any, template: str) -> None:
    theirs = both[1]
    names = {"bos_token": theirs.bos_token, "eos_token": theirs.eos_token}
    ours = ChatTemplate(template, names)
    for messages in CHATS:
        assert ours.render(messages) == theirs.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, tokenize=False
        )


def test_the_template_of_a_file_knows_its_special_tokens() -> None:
    metadata = {
        **byte_level_vocabulary(),
        "tokenizer.chat_template": "{{ bos_token }}{{ eos_token }}",
    }
    template = chat_template(metadata, "a.gguf")
    assert template is not None
    assert template.render([]) == "<|im_start|><|im_end|>"
    assert chat_template({}, "a.gguf") is None
    with pytest.raises(ValueError, match=r"a.gguf: tokenizer.chat_template is of type int"):
        chat_template({"tokenizer.chat_template": 3}, "a.gguf")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ nothing.attribute }}", "undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "more than 4194304"),
        ("{% for a in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{% include 'passwords' %}", "loader|passwords"),
    ],
)
def test_a_template_that_fails_or_reaches_out_is_an_error(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"can't render these messages: .*({message})"):
        ChatTemplate(template).render([{"role": "user", "content": "x"}])


def test_a_template_that_does_not_parse_is_refused() -> None:
    for template in ("{% if %}", "{{", "{% generation %}", "{{ x | nofilter }}", "(" * 50 + "{{ ("):
        with pytest.raises(ValueError, match=r"bad.gguf: the chat template doesn't parse"):
            ChatTemplate(template, source="bad.gguf")
