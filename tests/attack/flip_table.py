#!/usr/bin/env python3
"""Which forms notice a flipped bit: one bit of one exponent in what one dispatch wrote, counted over many dispatches.

    flip_table.py PATH_TO_TYTO MODEL [--flips N] [--write FILE]

A flip is noticed when the work is run again because of it; what comes out then must be what comes out without it.
Exit code 1 when it is not, or when --guard misses a flip of an int8 product.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FORMS = {
    "bf16, --fusion op": ["--fusion", "op"],
    "bf16, --fusion block": ["--fusion", "block"],
    "bf16, --fusion token": ["--fusion", "token"],
    "q4nx, --fusion token": ["--fusion", "token", "--weights", "q4nx"],
    "int8, --fusion op": ["--fusion", "op", "--weights", "int8"],
}
ANSWER = ["-p", "Tell me a story about a fox.", "--temp", "0", "-n", "8", "--device", "vnpu", "--prompt-rows", "64"]


def answer(arguments, flags, folder):
    """The text, and its receipt."""
    receipt = folder / "receipt.json"
    command = [arguments.tyto, "run", "-m", arguments.model, *ANSWER, *flags, "--receipt", receipt]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False,
                            env={**os.environ, "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)})
    if result.returncode != 0:
        sys.exit(f"{command}: {result.stderr}")
    return result.stdout, json.loads(receipt.read_text())


def dispatches(receipt):
    return sum(device["submissions"] for device in receipt["devices"] if device["virtual"])


def count(arguments, flags, folder):
    text, receipt = answer(arguments, flags, folder)
    every = max(1, dispatches(receipt) // arguments.flips)
    counts = {"flips": 0, "noticed": 0, "same text": 0, "another text": 0}
    for at in list(range(1, dispatches(receipt) + 1, every))[:arguments.flips]:
        found, said = answer(arguments, [*flags, "--vnpu-fault", f"flip@{at}"], folder)
        counts["flips"] += 1
        counts["noticed" if said["recoveries"] else "same text" if found == text else "another text"] += 1
        if said["recoveries"] and found != text:
            sys.exit(f"flip@{at} with {flags} was noticed, and the text is another one")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tyto", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--flips", type=int, default=40, help="dispatches that are hit in each form")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there, too")
    arguments = parser.parse_args()
    lines = ["| form | --guard | flips | noticed | not noticed, same text | not noticed, another text |",
             "|---|---|---:|---:|---:|---:|"]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in FORMS.items():
            for guard in ("off", "on"):
                if guard == "on" and "token" in name:
                    lines.append(f"| {name} | on | refused | | | |")
                    continue
                counts = count(arguments, [*flags, "--guard", guard], Path(folder))
                lines.append(f"| {name} | {guard} | " + " | ".join(map(str, counts.values())) + " |")
                if guard == "on" and "int8" in name:
                    missed = counts["flips"] - counts["noticed"]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if arguments.write:
        arguments.write.write_text(f"`flip_table.py TYTO {arguments.model.name} --flips {arguments.flips}`\n\n{table}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
