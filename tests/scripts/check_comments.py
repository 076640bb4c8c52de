#!/usr/bin/env python3
"""check_comments.py ROOT: comments of src/, tests/ and tools/ are sentences about the code, names of tests say their case.

A comment does not begin with "of", and does not have the words of WORDS: persons who act in place of code, and phrases
that need a second reading. HACKING.md has what to write instead. A test that expects an error says which (EXPECT_ERROR of
tests/support/expect_error.h), and its name is more than one word.
"""
import io
import re
import sys
import tokenize
from pathlib import Path

FOLDERS = ("src", "tests", "tools")
SLASHES = {".cc", ".h", ".comp", ".glsl", ".mjs"}
HASHES = {".cmake", ".sh", ".txt", ""}
WORDS = re.compile(
    r"\b(whoever|(?:no|some|any|every)(?:body|one)|no one|so many|anew|heed(?:s|ed|ing)?)\b", re.I)

SHORT_NAME = re.compile(r"^TEST(?:_F|_P)?\(\w+, [A-Z][a-z0-9]*\)", re.M)
BARE_THROW = re.compile(r"\b(?:EXPECT|ASSERT)_THROW\((?:(?!;\n).)*?,\s*(?:\w+::)*\w*Error\)", re.S)

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
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            yield *token.start, " ".join(token.string[3:-3].split())


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
            if path.suffix == ".cc" and folder == "tests":
                text = path.read_text()
                for what, pattern in (("is one word", SHORT_NAME), ("does not say which error", BARE_THROW)):
                    for found in pattern.finditer(text):
                        yield name, text.count("\n", 0, found.start()) + 1, what, found[0]


def main():
    found = [f"{name}:{line}: {what}: {text[:90]}" for name, line, what, text in findings(Path(sys.argv[1]))]
    if found:
        print("\n".join(found))
        print(f"{len(found)} to mend: HACKING.md, Habits, says what to write instead")
        sys.exit(1)
    print("comments are sentences")


main()
