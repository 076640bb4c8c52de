#!/usr/bin/env python3
"""Writes the transcript that `tyto verify --against FILE` compares with, by Hugging Face transformers.

  python3 tools/hf_reference.py MODEL_FOLDER OUT.json [--full] [--like OURS.json] [-n 32] [-k 10] [--dtype float32]

Prompts go through the model's chat template where it has one. With --like the prompts are those of a transcript
that `tyto verify --write` made, token for token, so that a difference between tokenizers plays no part.
docs/verify.md describes the file. Needs torch and transformers; downloads nothing.
"""
import argparse
import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

SCHEMA = "tyto-transcript-1"
QUICK = 2
# The same as in src/cli/verify.cc, in the same order; a test compares them.
PROMPTS = [
    "Tell me a story about a fox who finds a lamp.",
    "What is 3 plus 4?",
    "The owl looked down at the river and",
    "Name three things that are blue.",
    "Why does the moon change its shape?",
    "Write a short poem about rain.",
    "One, two, three, four,",
    "Who lives in the old house on the hill?",
]


def own_prompts(tokenizer, full):
    for text in PROMPTS[:len(PROMPTS) if full else QUICK]:
        if tokenizer.chat_template:
            rendered = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                     add_generation_prompt=True)
            has_bos = tokenizer.bos_token is not None and rendered.startswith(tokenizer.bos_token)
            yield text, tokenizer(rendered, add_special_tokens=not has_bos).input_ids
        else:
            yield text, tokenizer(text).input_ids


def prompts_like(path):
    data = json.loads(Path(path).read_text())
    if data.get("schema") != SCHEMA:
        sys.exit(f"{path}: its schema is not {SCHEMA}")
    for entry in data["prompts"]:
        yield entry["text"], entry["prompt"]


def end_tokens(model):
    """Every id that ends a text; a checkpoint may name one or several."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.eos_token_id
    return set() if ids is None else set(ids if isinstance(ids, list) else [ids])


def continue_greedily(torch, model, prompt, tokens, k):
    """The k best of every position, with all that tie with the last of them (64 at most)."""
    ends = end_tokens(model)
    generated, top = [], []
    ids, cache = torch.tensor([prompt]), None
    with torch.inference_mode():
        while len(generated) < tokens:
            out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            logits, cache = out.logits[0, -1].float(), out.past_key_values
            if not torch.isfinite(logits).all():
                sys.exit("the logits are not finite")
            best = sorted(zip((-logits).tolist(), range(len(logits))))[:k + 64]
            last = best[min(k, len(best)) - 1][0]
            top.append([[token, -value] for i, (value, token) in enumerate(best) if i < k or value == last])
            generated.append(top[-1][0][0])
            if generated[-1] in ends:
                break
            ids = torch.tensor([[generated[-1]]])
    return generated, top


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a checkpoint folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--full", action="store_true", help="8 prompts instead of 2")
    parser.add_argument("--like", help="take the prompts of this transcript")
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("-k", type=int, default=10, help="candidates written for every position")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    arguments = parser.parse_args()

    import torch
    import transformers
    # The same bits from run to run, and no help from a device.
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model,
                                                              dtype=getattr(torch, arguments.dtype)).eval()
    prompts = prompts_like(arguments.like) if arguments.like else own_prompts(tokenizer, arguments.full)
    rows = []
    for text, prompt in prompts:
        generated, top = continue_greedily(torch, model, prompt, arguments.tokens, arguments.k)
        rows.append({"text": text, "prompt": list(prompt), "generated": generated, "top": top})
        print(f"{text!r}: {tokenizer.decode(generated)!r}", file=sys.stderr)
    engine = f"transformers {transformers.__version__}, torch {torch.__version__}, {arguments.dtype} on cpu"
    data = {"schema": SCHEMA, "engine": engine, "model": arguments.model.resolve().name,
            "max_tokens": arguments.tokens, "k": arguments.k, "prompts": rows}
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    partial.write_text(json.dumps(data) + "\n")
    partial.replace(arguments.out)


if __name__ == "__main__":
    main()
