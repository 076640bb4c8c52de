#!/usr/bin/env python3
"""Plain English in what people read: help of every command, README.md and docs/ (but not docs/decisions).

usage: check_english.py [--program TYTO] [--documents ROOT]

Fails with FILE:LINE for words and turns that make a reader stop, and for sentences that are too long. Code, tables and
headings have no sentences; `code` in a sentence is one word."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

PATTERNS = [
    (r"\bheed(s|ed|ing)?\b", "heed"),
    (r"\b(come|comes|came|coming) true\b", "come true"),
    (r"\bso many\b", "so many"),
    (r"\bwhoever\b", "whoever"),
    (r"\bnobody\b", "nobody"),
    (r"\b(some|any)body\b", "somebody, anybody"),
    (r"\banew\b", "anew"),
    (r"\bof which\b", "of which"),
    (r"\bfor want of\b", "for want of"),
]
MOST_WORDS_OF_README, MOST_WORDS = 30, 45
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "resp.", "approx.", "no.", "fig.")
END_OF_SENTENCE = re.compile(r"[.!?][\"')\]*_…]*$")


def without_code(text):
    """`code` and addresses are one word each; a link is its text. Line breaks stay, for the numbers of lines."""
    def kept(word):
        return lambda found: word(found) + "\n" * (found[0].count("\n") - word(found).count("\n"))

    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", kept(lambda found: found[1]), text)
    text = re.sub(r"(`+).+?\1", kept(lambda found: "CODE"), text, flags=re.DOTALL)
    return re.sub(r"<[^>]*>|https?://\S+", kept(lambda found: "CODE"), text)


def paragraphs(text):
    """Lists of (line number, line): what lies between blank lines, code blocks, tables, headings and list items."""
    found, fenced, previous_blank, in_list = [[]], False, True, False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            found.append([])
            continue
        item = re.match(r"\s*([-*+]|\d+[.)])\s+", line)
        is_code = fenced or (line.startswith("    ") and not item and (previous_blank or not found[-1]) and not in_list)
        if not stripped or is_code or stripped.startswith(("|", "#", "<")):
            found.append([])
        elif item:
            found.append([(number, line[item.end():])])
        else:
            found[-1].append((number, stripped))
        in_list = bool(item) or (in_list and (line.startswith(" ") or not stripped))
        previous_blank = not stripped
    return [paragraph for paragraph in found if paragraph]


def prose_of(paragraph):
    lines = without_code("\n".join(line for _, line in paragraph)).split("\n")
    return [(number, line) for (number, _), line in zip(paragraph, lines)]


def sentences(paragraph):
    """(line number of its first word, words)"""
    begin, words = None, []
    for number, line in paragraph:
        for word in line.split():
            begin = begin or number
            words.append(word)
            if END_OF_SENTENCE.search(word) and not word.lower().lstrip("(").endswith(ABBREVIATIONS):
                yield begin, words
                begin, words = None, []
    if words:
        yield begin, words


def word_count(words):
    return sum(any(letter.isalnum() for letter in word) for word in words)


def check_lines(name, numbered_lines):
    for number, line in numbered_lines:
        for pattern, shown in PATTERNS:
            if re.search(pattern, line, re.IGNORECASE):
                yield f'{name}:{number}: "{shown}": {line.strip()[:100]}'


def check_document(root, path):
    name = str(path.relative_to(root))
    most = MOST_WORDS_OF_README if name == "README.md" else MOST_WORDS
    for paragraph in map(prose_of, paragraphs(path.read_text())):
        yield from check_lines(name, paragraph)
        for number, words in sentences(paragraph):
            if words[0] == "Of":
                yield f'{name}:{number}: begins with "Of": {" ".join(words)[:80]}'
            if word_count(words) > most:
                yield f"{name}:{number}: {word_count(words)} words, more than {most}: {' '.join(words)[:80]} …"


def check_documents(root):
    pages = [page for page in sorted((root / "docs").rglob("*.md")) if "decisions" not in page.relative_to(root).parts]
    for page in [root / "README.md", *pages]:
        yield from check_document(root, page)


def check_program(program):
    def said(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout

    names = [line.split() for line in said("manual", "--names").splitlines()]
    for arguments in (["--help"], ["--help-all"], *([*name, "--help-all"] for name in names)):
        text, name = said(*arguments), " ".join(["tyto", *arguments])
        yield from check_lines(name, enumerate(text.splitlines(), 1))
        for found in re.finditer(r"(?:^|[.!?] )(Of )", text, re.MULTILINE):
            yield f'{name}:{text[:found.start()].count(chr(10)) + 1}: begins with "Of"'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program")
    parser.add_argument("--documents", type=Path)
    options = parser.parse_args()
    problems = [*check_program(options.program)] if options.program else []
    problems += check_documents(options.documents.resolve()) if options.documents else []
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
