#!/usr/bin/env python3
"""Checks that no switch over an enum of Tyto has a default, so that the compiler lists what a new value needs.

Tyto's own values are small letters behind a type's name (Kernel::matmul); those of libraries and plain numbers may
have a default.
"""
import re
import sys
from pathlib import Path


def problems(source):
    for path in sorted([*source.rglob("*.cc"), *source.rglob("*.h")]):
        own = {}  # by the column of its labels: whether a switch has a case of Tyto's
        for number, line in enumerate(path.read_text().splitlines(), 1):
            column = len(line) - len(line.lstrip())
            text = line.strip()
            if text.startswith("switch ("):
                own[column + 2] = False
            elif re.match(r"case (\w+::)+[a-z]\w*:", text):
                own[column] = True
            elif text.startswith("default:") and own.get(column):
                yield f"{path}:{number}: a switch over an enum of Tyto has a default"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "no switch over an enum of Tyto has a default")
    sys.exit(1 if found else 0)
