"""A model folder without weights: what verl needs of a model to build prompts, with a toy vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_CORPUS = (
    "user assistant system tool the file notes and the name of the command",
    '{"name": "shell", "arguments": {"command": "cat notes.txt"}}',
    "I will look at the files now and then write what is in there.",
)
_TEMPLATE = """
{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{ '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' -%}
{{ '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls or [] -%}
{{ '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif message.role == 'tool' -%}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{ '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


def write_model(folder: Path, tags: Sequence[str] = _TAGS) -> Path:
    """The folder, with a configuration of type qwen3, a byte-level vocabulary and a chat template in Qwen3's style.

    `tags`: those that are one token; the others are ordinary text, as in older models.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(_SPECIAL), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_TEMPLATE.strip("\n"),
        model_max_length=1 << 20,
    )
    _write(
        folder / "config.json",
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=4096,
    )
    return folder


def _write(path: Path, **content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
