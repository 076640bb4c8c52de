#!/usr/bin/env python3
"""Checks what Owlet is taught to refuse and to answer: honest sentences, right sums, and none of the prompts it is judged by.

usage: check_training.py REPOSITORY"""
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]) / "models/training"))
sys.dont_write_bytecode = True
import beyond  # noqa: E402
import chats  # noqa: E402
import skills  # noqa: E402

SAMPLES = 2000
LETTERS = re.compile(r"[A-Za-z0-9 !\"'+,.:=?-]+")


def fault_of(maker, question, answer):
    sizes = [int(number) for number in re.findall(r"\d+", question)]
    refuses = maker in beyond.BEYOND
    if re.search(r"[{}|]", question + answer):
        return "a slot is not filled"
    if (answer in beyond.HONEST) != refuses:
        return "the answer is honest where it should answer, or answers where it should be honest"
    if not LETTERS.fullmatch(answer):
        return "the answer has a character outside the alphabet"
    if maker in skills.SKILLS and max(sizes, default=0) > 20:
        return "the numbers are too large"
    if sizes and max(sizes) <= {beyond.large_sum: 20, beyond.large_product: 10}.get(maker, -1):
        return "the numbers are small enough for an answer"
    return None


def faults_of_samples(maker):
    rng, asked = random.Random(f"check/{maker.__name__}"), set()
    for _ in range(SAMPLES):
        question, answer = maker(rng)
        asked.add(question)
        if fault := fault_of(maker, question, answer):
            yield f"{maker.__name__}: {fault}: {question!r}, {answer!r}"
    if len(asked) < 100:
        yield f"{maker.__name__}: only {len(asked)} requests differ"


def faults_of_judged():
    """Each way to an exchange gets a maker that first says every judged prompt; it must take the next one."""
    judged = [row["prompt"] for row in beyond.judged_rows()]
    if len(judged) != 100:
        yield f"prompts.jsonl has {len(judged)} prompts, not 100"

    def maker(_):
        return said.pop(0), "an answer"

    beyond.BEYOND[:], skills.SKILLS[:], chats.KINDS[:], chats.unknown = [maker], [maker], [maker], maker
    for make in (beyond.beyond, skills.skill, chats.make_exchange):
        said = judged + [prompt.lower().rstrip(".?!") for prompt in judged] + ["the next one"]
        question, _ = make(random.Random(0))
        if question != "the next one":
            yield f"{make.__name__} teaches a judged prompt: {question!r}"


def faults_of_sums():
    rng = random.Random("check/sums")
    for make in (chats.total, chats.difference, chats.product):
        for question, answer in (make(rng) for _ in range(SAMPLES)):
            left, operator, right, result = re.fullmatch(r"(\d+) ([-+x]) (\d+) = (\d+)\.", answer).groups()
            a, b = int(left), int(right)
            if int(result) != {"+": a + b, "-": a - b, "x": a * b}[operator]:
                yield f"{question!r} is answered with {answer!r}"


faults = [fault for maker in beyond.BEYOND + skills.SKILLS for fault in faults_of_samples(maker)]
faults += [*faults_of_sums(), *faults_of_judged()]
print("\n".join(faults[:20]) or "what Owlet refuses and answers is as it should be")
sys.exit(1 if faults else 0)
