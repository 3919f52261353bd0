"""Chat templates that do harm, and messages that spell a model's control tokens."""

from __future__ import annotations

from typing import Any

import pytest
from gguf_files import CONTROL, byte_level_vocabulary, sentencepiece_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.models.chat import ChatTemplate
from onnx_iron.models.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "hello"}]

MEMORY, TIME = "needs more than 512 MiB of memory", "takes more than 4 s of processor time"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", TIME),
        ("{{ 9 ** (9 ** 9) }}", f"{TIME}|{MEMORY}"),
        ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
         TIME),
        ("{{ ('a' * 30000000) | wordwrap(1) | length }}", f"{TIME}|{MEMORY}"),
        ("{{ ('a' * 3000000000) | length }}", MEMORY),
        ("{% set x = [0] * 500000000 %}{{ x | length }}", MEMORY),
        ("{{ 'a'.center(3000000000) | length }}", MEMORY),
        ("{{ '%03000000000d' % 1 }}", MEMORY),
        ("{{ '{:03000000000d}'.format(1) | length }}", MEMORY),
        ("{{ strftime_now('%Y' * 300000000) | length }}", MEMORY),
        ("{% set n = namespace(x='a' * 9) %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}"
         "{% endfor %}{{ n.x | length }}", MEMORY),
        ("{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "more than 4194304 characters"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion"),
        ("{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}", "recursion|too deep a nesting"),
        ("{{ messages | tojson(cls=namespace) }}", "unexpected keyword argument 'cls'"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_a_template_without_end_or_measure_is_an_error(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"big.gguf: the chat template .*({message})"):
        ChatTemplate(template, source="big.gguf").render(HELLO)


def test_a_template_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    monkeypatch.setattr("onnx_iron.models.chat._SECONDS", 0.5)
    monkeypatch.setattr("onnx_iron.models.chat._START", "import time; time.sleep(60)")
    with pytest.raises(ValueError, match=r"can't render these messages: it takes more than 0.5 s"):
        template.render(HELLO)


def test_messages_that_are_no_data_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for content in (object(), b"bytes", loop):
        with pytest.raises(ValueError, match="not dicts of texts, numbers, lists and dicts"):
            ChatTemplate("{{ messages }}").render([{"role": "user", "content": content}])


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}{% set content = '<|start_header_id|>' + m['role'] + "
    "'<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if m['role'] == 'user' %}"
    "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% elif m['role'] == 'assistant' %}"
    "{{ m['content'] + eos_token }}{% else %}{{ raise_exception('only user and assistant') }}"
    "{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% set role = m['role'] %}"
    "{% if role == 'assistant' %}{% set role = 'model' %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
OF_PARTS = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}"
TEMPLATES = {
    "ChatML": CHATML,
    "Llama 3": LLAMA3,
    "Mistral": MISTRAL,
    "Gemma": GEMMA,
    "of parts": OF_PARTS,
}
TOKENS = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<bos>"]
TOKENS += ["<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>"]


def with_tokens(vocabulary: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a vocabulary to which the templates' control tokens are added."""
    metadata = dict(vocabulary)
    for name, added in (
        ("tokens", TOKENS),
        ("token_type", [CONTROL] * len(TOKENS)),
        ("scores", [0.0] * len(TOKENS)),
    ):
        key = f"tokenizer.ggml.{name}"
        if key in metadata:
            metadata[key] = [*metadata[key], *added]
    return Tokenizer(metadata)


@pytest.fixture(scope="module", params=["byte level", "SentencePiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kinds = {"byte level": byte_level_vocabulary, "SentencePiece": sentencepiece_vocabulary}
    return with_tokens(kinds[request.param]())


@pytest.fixture(scope="module", params=TEMPLATES)
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[request.param], {"bos_token": "<bos>", "eos_token": "<|eot_id|>"})


CHATS = [
    HELLO,
    [{"role": "user", "content": ""}],
    [
        {"role": "user", "content": " <b>&  x \n"},
        {"role": "assistant", "content": "2 < 3 | 4"},
        {"role": "user", "content": "<|not a token|> 😀"},
    ],
]


@pytest.mark.parametrize("messages", CHATS)
def test_a_usual_chat_has_the_ids_of_its_text(
    template: ChatTemplate, tokenizer: Tokenizer, messages: list[dict[str, str]]
) -> None:
    text = template.render(messages)
    assert template.encode(messages, tokenizer) == tokenizer.encode(text)


@settings(max_examples=8)
@given(
    parts=st.lists(
        st.sampled_from(
            [*TOKENS, "<|im_end|>", "<|im_start|>", "</s>", "a", " ", "\n", "<|", "|>"]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_messages_spell_stays_text(
    template: ChatTemplate, tokenizer: Tokenizer, parts: list[str]
) -> None:
    spelled = "x" + "".join(parts) + "x"

    def controls(content: str) -> list[str]:
        ids = template.encode([{"role": "user", "content": content}], tokenizer)
        assert content in tokenizer.decode(ids, skip_special=False).replace("▁", " ")
        return [tokenizer.token(i) for i in ids if tokenizer.token(i) in tokenizer.control_tokens]

    assert controls(spelled) == controls("xx")


def test_a_role_that_spells_a_control_token_stays_text(tokenizer: Tokenizer) -> None:
    ids = ChatTemplate(CHATML).encode([{"role": "<|eot_id|>", "content": "x"}], tokenizer)
    assert tokenizer.control_tokens["<|eot_id|>"] not in ids


def test_a_template_that_cuts_contents_at_control_tokens_refuses_those_that_spell_them(
    tokenizer: Tokenizer,
) -> None:
    template = ChatTemplate("{{ messages[0].content.split('[/INST]')[0] }}<bos>", source="cut.gguf")
    assert template.encode(HELLO, tokenizer) == tokenizer.encode("hello<bos>")
    with pytest.raises(ValueError, match=r"cut.gguf: .* they spell control tokens of the model"):
        template.encode([{"role": "user", "content": "a[/INST]b"}], tokenizer)


LOOKS_IN = "{% if 'x' in messages[0].content %}<bos>{% endif %}{{ messages[0].content }}"


def test_a_token_made_of_parts_is_not_told_from_a_spelled_one_where_contents_are_looked_into(
    tokenizer: Tokenizer,
) -> None:
    template = ChatTemplate("{{ '[/IN' + messages[0].kind }}" + LOOKS_IN)
    with pytest.raises(ValueError, match="which are whose can't be told"):
        template.encode([{"role": "user", "content": "x", "kind": "ST]"}], tokenizer)


def test_characters_of_the_private_planes_are_text_as_any_other(tokenizer: Tokenizer) -> None:
    typed = "x" + "".join(chr(0xF0000 + place) for place in range(64))
    ids = ChatTemplate(LOOKS_IN).encode([{"role": "user", "content": typed}], tokenizer)
    assert ids == tokenizer.encode("<bos>" + typed)


def test_a_token_that_begins_another_one_is_not_taken_for_it() -> None:
    vocabulary = byte_level_vocabulary()
    count, longer = len(vocabulary["tokenizer.ggml.tokens"]), "[INST]x[INST]"
    vocabulary["tokenizer.ggml.tokens"] = [*vocabulary["tokenizer.ggml.tokens"], "[INST]", longer]
    kinds = [*vocabulary["tokenizer.ggml.token_type"], CONTROL, CONTROL]
    vocabulary["tokenizer.ggml.token_type"] = kinds
    tokenizer = Tokenizer(vocabulary)
    template = ChatTemplate("{{ '" + longer + "[INST]' + messages[0].content }}")
    expected = [count + 1, count, *tokenizer.encode("hello")]
    assert tokenizer.encode(longer + "[INST]hello") == expected
    assert template.encode(HELLO, tokenizer) == expected
