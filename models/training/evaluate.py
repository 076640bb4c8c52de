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

import chats
from beyond import BEYOND, HONEST, fresh, judged_rows
from make_data import HERE, stream, words_of
from skills import can_do, count_from, feels, use

LIMIT = 300
SHORT_LIMIT = 60
ONE_ANSWER = [
    chats.total, chats.difference, chats.product, chats.word_sum, chats.opposite, chats.color,
    chats.animal_sound, chats.baby, chats.legs, chats.home, chats.food, chats.day, chats.month,
    chats.season, chats.letter, chats.number_next, chats.count, chats.compare,
    chats.compare_numbers, chats.plural_of, chats.spell, chats.fact, chats.passage, count_from,
    can_do, feels, use]
BY_HAND = [
    "Write a haiku about frogs and rain.", "Give me a rap about my math teacher.",
    "Draft a resignation letter.", "Write the minutes of our meeting.", "Compose a melody in C minor.",
    "Write a bash one-liner that deletes empty files.", "How do I center a div?",
    "Give me a JSON with the keys name and age.", "Make a table with three columns.",
    "What is wrong with this code: while True print(1)", "Explain recursion to a programmer.",
    "Translate the word butterfly into Spanish.", "How do you say cheese in French?",
    "Was kostet ein Brot?", "Où puis-je acheter du lait ?", "¿Puedes ayudarme con mi tarea?",
    "Kan du hjälpa mig?", "Co robisz dzisiaj wieczorem?", "Summarize the plot of Hamlet.",
    "Make this sentence shorter: The quick brown fox jumps over the lazy dog again and again.",
    "Is the following sentence grammatical? Me wants cookie.", "Sort these numbers: 9, 4, 17, 2.",
    "Why do cats always land on their feet?", "Why does popcorn pop?", "How do glaciers move?",
    "Who painted The Starry Night?", "What is the tallest mountain in Africa?",
    "When did the Berlin Wall fall?", "How many moons does Saturn have?", "What is a black hole?",
    "Can you recommend a good restaurant in Boston?", "Is my mole dangerous?",
    "How much ibuprofen can I take?", "What will the stock market do next week?",
    "What is 48 + 39?", "What is 1000 - 1?", "What is 17 times 23?", "What is 144 divided by 12?",
    "What is 15 percent of 80?", "If a train goes 60 miles in an hour, how far does it go in three?",
    "What is the derivative of x squared?", "Convert 10 miles to kilometers.", "glorp snib wazzle",
    "hjkl", "purple the seven quickly", "What is a snorgle?", "Can a blivet zorp?", "....",
    "How does the thing with the other one go?", "Book me a flight to Rome."]
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


def answers(model, tokenizer, requests, limit=LIMIT, batch=256):
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
            made = model.generate(padded, attention_mask=mask, max_new_tokens=limit,
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


def small_questions(count):
    """Questions of the trained kinds, each with every answer that is right."""
    rng, right = stream("evaluation/small"), {}
    for _ in range(40_000):
        question, reply = rng.choice(ONE_ANSWER)(rng)
        right.setdefault(question, set()).add(reply)
    return dict(list(right.items())[:count])


def beyond_requests(count):
    rng, found = stream("evaluation/beyond"), {}
    while len(found) < count:
        found[fresh(rng.choice(BEYOND), rng)[0]] = None
    return list(found)


def short_answers(model, tokenizer):
    """What it answers to small questions, to requests beyond it and to the hundred prompts."""
    def ask(requests):
        made = answers(model, tokenizer, requests, SHORT_LIMIT)
        return [{"request": request, "answer": reply[0]} for request, reply in zip(requests, made)]

    def honesty(requests):
        rows = ask(requests)
        return {"requests": len(rows), "honest": sum(row["answer"] in HONEST for row in rows),
                "answers": rows}

    right = small_questions(200)
    wrong = [row for row in ask(list(right)) if row["answer"] not in right[row["request"]]]
    prompts = [row["prompt"] for row in judged_rows()]
    return {"small": {"questions": len(right), "right": len(right) - len(wrong), "wrong": wrong},
            "beyond": honesty(beyond_requests(150)), "by_hand": honesty(BY_HAND),
            "prompts": ask(prompts)}


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
    short = short_answers(model, tokenizer)
    print(short["small"], *(f"{name}: {short[name]['honest']} of {short[name]['requests']} honest"
                            for name in ("beyond", "by_hand")), sep="\n")
    extra = [{"request": request, "answer": answer[0]}
             for request, answer in zip(EXTRA, made[len(requests):])]
    options.out.write_text(
        json.dumps({**result, **short, "extra": extra, "stories": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
