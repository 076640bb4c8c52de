#!/usr/bin/env python3
"""Checks the walks through the code that HACKING.md shows, and its recipe for a new operation.

Each function of a walk must be in its file, and named in the file of the one before it; the heading counts the calls.
A walk crosses threads and device interfaces where a row says so in brackets: what stands behind is not named before it.
Each file of the recipe must be there.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from draw_layers import has_function  # noqa: E402


def walks(lines):
    """(title, calls that it claims, [(file, functions, is called by name)]) of each table."""
    found = []
    for line in lines:
        if heading := re.match(r"\| (.+): (\d+) calls \| in \|$", line):
            found.append((heading[1], int(heading[2]), []))
        elif found and (row := re.match(r"\| (\(.+?\) )?(`.+`) \| `(\S+)` \|$", line)):
            found[-1][2].append((row[3], re.findall(r"`([^`]+)`", row[2]), row[1] is None))
    return found


def problems_of_walk(title, claimed, rows):
    functions = [name for _, names, _ in rows for name in names]
    if len(functions) != claimed:
        yield f"{title}: {len(functions)} calls, and the table says {claimed}"
    before = None
    for file, names, is_called in rows:
        path = ROOT / "src" / file
        if not path.exists():
            yield f"{title}: there is no src/{file}"
            return
        source = path.read_text()
        for at, name in enumerate(names):
            if not has_function(source, name):
                yield f"{title}: src/{file} has no {name}"
            last = name.split("::")[-1]
            if before and (is_called or at > 0) and not re.search(rf"\b{last}\(", before):
                yield f"{title}: {name} is not named in the file of the function before it"
            before = source


def problems(text):
    lines = text.splitlines()
    found = walks(lines)
    if len(found) != 3:
        yield f"HACKING.md has {len(found)} walks, and not those of a token, a request and a dispatch"
    for walk in found:
        yield from problems_of_walk(*walk)
    recipe = re.search(r"\*\*A new operation\*\*.*?(?=\n\*\*)", text, re.S)
    files = re.findall(r"`([\w/]+\.(?:cc|h|comp))`", recipe[0]) if recipe else []
    for file in files:
        if not (ROOT / "src" / file).exists() and not (ROOT / file).exists():
            yield f"the recipe for a new operation names {file}, which is not there"
    if len(files) != 18:
        yield f"the recipe for a new operation has {len(files)} files, and its commit 18"


if __name__ == "__main__":
    found = list(problems((ROOT / "HACKING.md").read_text()))
    print("\n".join(found) or "the walks are in the code")
    sys.exit(1 if found else 0)
