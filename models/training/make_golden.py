"""Writes golden.json: what transformers answers on the CPU, in f32 and in bf16, and its perplexity.

  python make_golden.py --model DIR
"""

import argparse
import json
import math
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 64
WINDOW, STRIDE = 1024, 512


def user(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]


CHATS = [
    user("Tell me a story about a fox who finds a lamp."),
    user("Write a short story about a girl named Lily and a kite in the park."),
    user("Tell me a story about a brave mouse in the castle."),
    user("Please tell me a story about a robot and a rabbit on the moon."),
    user("I want a bedtime story about a bear who cannot sleep."),
    user("Write a story with these words: dragon, key, tower."),
    user("Continue: Once upon a time, there was a young otter named Pip who lived near the river. "
         "One day,"),
    user("Who are you?"),
    user("What is 8 + 7?"),
    user("Count to twenty."),
    [{"role": "system", "content": "You are Owlet, a tiny storyteller."}] +
    user("Can you tell me a story about a boy named Max who loses his ball?"),
    user("What is the opposite of big?", "The opposite of big is small.",
         "And now tell me a story about a goat and a drum."),
]


@torch.no_grad()
def greedy(model, ids, stops):
    made, margins, ranges = [], [], []
    step, cache = torch.tensor([ids]), None
    while len(made) < TOKENS:
        result = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache, logits = result.past_key_values, result.logits[0, -1].float()
        best = torch.topk(logits, 2)
        made.append(best.indices[0].item())
        margins.append((best.values[0] - best.values[1]).item())
        ranges.append((logits.max() - logits.min()).item())
        if made[-1] in stops:
            break
        step = torch.tensor([[made[-1]]])
    return {"ids": made, "margin": [round(x, 5) for x in margins],
            "range": [round(x, 4) for x in ranges]}


@torch.no_grad()
def perplexity(model, ids):
    """Every token but the first is scored once; later windows score only their last STRIDE."""
    total, count, start = 0.0, 0, 0
    while True:
        window = ids[start:start + WINDOW]
        logits = model(torch.tensor([window])).logits[0].float()
        first = 1 if start == 0 else WINDOW - STRIDE
        if len(window) > first:
            chosen = torch.log_softmax(logits[first - 1:len(window) - 1], dim=-1).gather(
                1, torch.tensor(window[first:]).unsqueeze(1))
            total -= chosen.double().sum().item()
            count += len(window) - first
        if start + WINDOW >= len(ids):
            return {"file": "heldout.txt", "window": WINDOW, "stride": STRIDE, "tokens": count,
                    "nll": total, "ppl": math.exp(total / count)}
        start += STRIDE


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    folder = parser.parse_args().model
    torch.set_num_threads(8)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    stops = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    prompts = []
    for messages in CHATS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompts.append({"messages": messages, "text": text,
                        "ids": tokenizer(text, add_special_tokens=False)["input_ids"]})
    golden = {"transformers": transformers.__version__, "torch": torch.__version__,
              "prompts": prompts}
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype,
                                                     attn_implementation="eager").eval()
        for prompt in prompts:
            prompt[name] = greedy(model, prompt["ids"], stops)
            prompt[name]["text"] = tokenizer.decode(prompt[name]["ids"])
        if name == "f32":
            ids = tokenizer((folder / "heldout.txt").read_text())["input_ids"]
            golden["perplexity"] = {"dtype": name, **perplexity(model, ids)}
            print(golden["perplexity"], ids[:4], len(ids), flush=True)
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    for prompt in prompts:
        print(repr(prompt["f32"]["text"][:160]), prompt["f32"]["ids"] == prompt["bf16"]["ids"])


if __name__ == "__main__":
    main()
