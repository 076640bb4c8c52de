#!/usr/bin/env python3
"""Asks Owlet the 100 prompts of prompts.jsonl again and prints which answers changed.

usage: judge.py [--program TYTO] [--table]

The judgements are a person's, made by reading; a changed answer needs a new one. --table asks nothing and prints how many
answers of each kind got which judgement. Greedy answers depend on the processor's instructions: two words that are equally
likely may change places."""
import argparse
import collections
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
KINDS, JUDGEMENTS = ("story", "question", "cannot-do"), ("good", "partly", "honest", "nonsense")


def answer(program, prompt):
    command = [program, "run", "-m", FOLDER, "--temp", "0", "-n", "60", "-p", prompt]
    result = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return result.stdout.removesuffix("\n")


def table(rows):
    count = collections.Counter((row["kind"], row["judgement"]) for row in rows)
    lines = ["| | " + " | ".join(JUDGEMENTS) + " |", "|---|" + "---|" * len(JUDGEMENTS)]
    for kind in KINDS:
        lines.append(f"| {kind} | " + " | ".join(str(count[kind, judgement]) for judgement in JUDGEMENTS) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=FOLDER.parent.parent / "build/release/tyto")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    rows = [json.loads(line) for line in (FOLDER / "prompts.jsonl").read_text().splitlines()]
    if options.table:
        print(table(rows))
        return
    changed = 0
    for row in rows:
        now = answer(options.program, row["prompt"])
        if now == row["answer"]:
            continue
        changed += 1
        print(f"{row['prompt']}\n  was ({row['judgement']}): {row['answer']!r}\n  now: {now!r}")
    print(f"{changed} of {len(rows)} answers changed")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
