# SPDX-License-Identifier: Apache-2.0
"""Writes a small Qwen2.5-VL with seeded random weights, its byte-level tokenizer and image processor.

It says nothing sensible. It is for running vLLM's own processes where only what they exchange counts: an
image of 448 x 448 becomes 256 rows of 128 bfloat16.

usage: peers_model.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor
from transformers.utils import logging

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"]
SPECIALS += ["<|image_pad|>", "<|video_pad|>", "<|object_ref_start|>", "<|object_ref_end|>"]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for c in message['content'] %}"
    "{% if c['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(out):
    """Writes a tokenizer of single bytes and returns the ids of the special tokens."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()) + SPECIALS)}
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tok = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIALS,
        model_max_length=4096,
    )
    tok.chat_template = TEMPLATE
    tok.save_pretrained(out)
    settings = out / "tokenizer_config.json"
    data = json.loads(settings.read_text())
    data["tokenizer_class"] = "Qwen2Tokenizer"  # vLLM looks the processor up by it
    settings.write_text(json.dumps(data, indent=1, ensure_ascii=False))
    return {s: tok.convert_tokens_to_ids(s) for s in SPECIALS}


def config(ids):
    hidden = 128
    text = dict(
        model_type="qwen2_5_vl_text", hidden_size=hidden, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=512, max_position_embeddings=4096,
        rope_theta=10000.0, rope_scaling={"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
        tie_word_embeddings=False, rms_norm_eps=1e-6, max_window_layers=2, use_sliding_window=False,
        bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"],
    )
    vision = dict(
        depth=2, hidden_size=64, intermediate_size=128, num_heads=4, out_hidden_size=hidden, patch_size=14,
        spatial_merge_size=2, temporal_patch_size=2, window_size=112, fullatt_block_indexes=[1],
        in_channels=3, in_chans=3, spatial_patch_size=14, tokens_per_second=2,
    )
    return Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"], tie_word_embeddings=False,
    )


def main():
    logging.disable_progress_bar()
    out = Path(sys.argv[1])
    ids = write_tokenizer(out)
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(config(ids)).to(torch.bfloat16)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim >= 2:
                p.normal_(0, 0.08)  # larger than the default, so that greedy answers vary
    model.save_pretrained(out)
    processor = Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=1024 * 1024, patch_size=14, merge_size=2, temporal_patch_size=2)
    processor.save_pretrained(out)


if __name__ == "__main__":
    main()
