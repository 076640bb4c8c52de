"""Measures a checkpoint on the held-out requests with greedy decoding, by transformers in f32.

  python evaluate.py --model DIR --data DIR --out FILE
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from make_data import HERE, words_of

LIMIT = 300
EXTRA = [
    "Tell me a story about a fox who finds a lamp.", "Tell me a story.",
    "Write a short story about a girl named Lily and a kite in the park.", "Who are you?",
    "Hello!", "What is 7 + 5?", "What is the opposite of hot?", "What does a cow say?",
    "What day comes after Friday?", "Count to ten.", "What color is the sky?",
    "What is the capital of Peru?", "What is 13 - 6?",
    "Tell me a story about a whale and a spaceship.",
    "Write a story about a boy named Zorbo who is afraid of the dark.",
    "Tell me a story about sharing.",
    "Continue: Once upon a time, there was a little owl who could not sleep.",
    "Which is bigger, a mouse or an elephant?", "Can you write a poem about the sea?",
    "Tell me a story about a hedgehog named Quillbert and a trombone.",
    "How many legs does a spider have?"]


def alphabet_of(data):
    letters, words, prints = set(), set(), []
    for path in sorted(data.glob("words*.json")):
        entry = json.loads(path.read_text())
        letters |= set(entry["letters"])
        words |= set(entry["words"])
    prints = np.concatenate([np.load(path) for path in sorted(data.glob("hashes*.npy"))])
    tokens = sum(len(np.load(path, mmap_mode="r")) for path in data.glob("shard*.npy"))
    return letters, words, {"samples": len(prints), "distinct": len(np.unique(prints)),
                            "tokens": tokens}


def answers(model, tokenizer, requests, batch=256):
    """Greedy answers as (text, tokens, whether the turn was ended)."""
    eot = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    found = []
    for start in range(0, len(requests), batch):
        prompts = [tokenizer.apply_chat_template([{"role": "user", "content": request}],
                                                 tokenize=False,
                                                 add_generation_prompt=True)
                   for request in requests[start:start + batch]]
        ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
        width = max(map(len, ids))
        padded = torch.tensor([[eot] * (width - len(row)) + row for row in ids],
                              device=model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids],
                            device=model.device)
        with torch.no_grad():
            made = model.generate(padded, attention_mask=mask, max_new_tokens=LIMIT,
                                  do_sample=False,
                                  temperature=None, top_p=None, pad_token_id=eot, eos_token_id=eot)
        for row in made[:, width:].tolist():
            ended = eot in row
            row = row[:row.index(eot)] if ended else row
            found.append((tokenizer.decode(row, skip_special_tokens=False), len(row), ended))
    return found


def distinct_share(text, size=4):
    words = re.findall(r"\w+|[^\w\s]", text)
    grams = [tuple(words[i:i + size]) for i in range(len(words) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def names(text, word):
    return re.search(rf"\b{re.escape(word)}\b", text, re.I) is not None


def judge(entry, answer, letters, words):
    text, length, ended = answer
    known = words | set(words_of(entry["request"]))
    strange = sorted({word for word in words_of(text) if word not in known})
    return {"request": entry["request"], "answer": text, "tokens": length,
            "character": all(names(text, word) for word in entry["character"]),
            "place": names(text, entry["place"]),
            "object": None if entry["object"] is None else names(text, entry["object"]),
            "ended": ended, "alphabet": set(text) <= letters, "strange_words": strange,
            "distinct": round(distinct_share(text), 4)}


def mean(values):
    values = list(values)
    return sum(values) / max(1, len(values))


def summary(rows):
    asked = [row for row in rows if row["object"] is not None]
    return {"requests": len(rows), "character": mean(row["character"] for row in rows),
            "place": mean(row["place"] for row in rows),
            "character_and_place": mean(row["character"] and row["place"] for row in rows),
            "ended": mean(row["ended"] for row in rows),
            "alphabet": mean(row["alphabet"] for row in rows),
            "object_asked": len(asked), "object": mean(row["object"] for row in asked),
            "no_strange_words": mean(not row["strange_words"] for row in rows),
            "distinct_mean": mean(row["distinct"] for row in rows),
            "distinct_min": min(row["distinct"] for row in rows),
            "tokens_mean": mean(row["tokens"] for row in rows),
            "all_criteria": mean(
                row["character"] and row["place"] and row["ended"] and row["alphabet"]
                and row["distinct"] >= 0.75 for row in rows)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model,
                                                 dtype=torch.float32).to("cuda").eval()
    letters, words, counts = alphabet_of(options.data)
    requests = json.loads((HERE / "heldout_requests.json").read_text())
    made = answers(model, tokenizer, [entry["request"] for entry in requests] + EXTRA)
    rows = [judge(entry, answer, letters, words) for entry, answer in zip(requests, made)]
    result = {"summary": summary(rows), "data": counts, "letters": "".join(sorted(letters))}
    print(json.dumps(result))
    extra = [{"request": request, "answer": answer[0]}
             for request, answer in zip(EXTRA, made[len(requests):])]
    options.out.write_text(json.dumps({**result, "extra": extra, "stories": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
