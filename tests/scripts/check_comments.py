#!/usr/bin/env python3
"""check_comments.py ROOT: comments of src/, tests/ and tools/ are sentences about the code.

A comment does not begin with "of", and does not have the words of WORDS: persons who act in place of code, and phrases
that need a second reading. HACKING.md has what to write instead.
"""
import io
import re
import sys
import tokenize
from pathlib import Path

FOLDERS = ("src", "tests", "tools")
SLASHES = {".cc", ".h", ".comp", ".glsl", ".mjs"}
HASHES = {".cmake", ".sh", ".txt", ""}
WORDS = re.compile(r"\b(whoever|nobody|somebody|anybody|so many|anew|heed(?:s|ed|ing)?)\b", re.I)

# How many a folder has left. These numbers fall.
LEFT = {
    "src/base": 35,
    "src/check": 6,
    "src/cli": 52,
    "src/cost": 1,
    "src/device/cpu": 43,
    "src/device": 2,
    "src/device/vnpu": 31,
    "src/device/vulkan": 58,
    "src/doctor": 9,
    "src/engine": 24,
    "src/llama": 42,
    "src/model": 36,
    "src/program": 15,
    "src/report": 15,
    "src/serve": 59,
}

# A string, a character or a comment of C++, GLSL or JavaScript, whichever begins first.
TOKEN = re.compile(r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*', re.S)


def slash_comments(text):
    """(line, column, text) of every comment."""
    for token in TOKEN.finditer(text):
        if token[0].startswith("//"):
            begin = token.start()
            yield text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin) - 1, token[0][2:]


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield *token.start, token.string[1:]


def hash_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(r"(?:^|\s)#(?!!)(.*)", line)
        if found:
            yield number, found.start(1) - 1, found[1]


def comments(path):
    text = path.read_text(errors="replace")
    if path.suffix in SLASHES:
        return slash_comments(text)
    if path.suffix == ".py":
        return python_comments(text)
    if path.name == "CMakeLists.txt" or (path.suffix in HASHES - {".txt"} and (path.suffix or text.startswith("#!"))):
        return hash_comments(text)
    return ()


def joined(path):
    """Comments with the lines that they go on in: (line, text). Those stand alone, below the first."""
    whole, last_line, last_column = None, -1, -1
    lines = path.read_text(errors="replace").split("\n")
    for line, column, text in comments(path):
        goes_on = line == last_line + 1 and column == last_column and not lines[line - 1][:column].strip()
        if whole and goes_on and whole[1] and text.strip():
            whole[1] += " " + text.strip()
        else:
            if whole:
                yield whole
            whole = [line, text.strip()]
        last_line, last_column = line, column
    if whole:
        yield whole


def findings(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file() or "data" in path.parts or "corpus" in path.parts or "__pycache__" in path.parts:
                continue
            name = path.relative_to(root)
            for line, text in joined(path):
                if re.match(r"of\b", text, re.I):
                    yield name, line, "begins with \"of\"", text
                for word in WORDS.findall(text):
                    yield name, line, f'has "{word}"', text


def folder_of(name):
    """src/device is large: its folders have numbers of their own."""
    return "/".join(name.parts[: 3 if name.parts[1] == "device" and len(name.parts) > 3 else 2])


def main():
    root = Path(sys.argv[1])
    by_folder = {}
    for name, line, what, text in findings(root):
        by_folder.setdefault(folder_of(name), []).append(f"{name}:{line}: {what}: {text[:90]}")
    is_wrong = False
    for folder, lines in by_folder.items():
        if len(lines) > LEFT.get(folder, 0):
            is_wrong = True
            print("\n".join(lines))
            print(f"{folder}: {len(lines)} comments of this kind, {LEFT.get(folder, 0)} are left to mend (HACKING.md, Habits)")
    if is_wrong:
        sys.exit(1)
    print(f"comments are sentences; {sum(map(len, by_folder.values()))} are left to mend")


main()
