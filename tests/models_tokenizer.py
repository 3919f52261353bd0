"""A byte-level tokenizer with a chat template, for small checkpoints."""

from __future__ import annotations

from pathlib import Path

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = ["A river runs to the sea, and the sea is wide.", "Über den Wellen läuft ein Licht 灯台."]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE with a chat template."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(CORPUS * 3, trainer)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", bos_token="<|endoftext|>"
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def save_tokenizer(folder: Path) -> None:
    """Write it beside a checkpoint."""
    tokenizer().save_pretrained(folder)
