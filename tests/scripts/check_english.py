#!/usr/bin/env python3
"""Plain English in what people read: help of every command, README.md, docs/, the other pages of the
repository, and the texts in src/, those of the page among them.

usage: check_english.py [--program TYTO] [--documents ROOT]

Fails with FILE:LINE for words and turns that make a reader stop, for sentences that are too long, and for a README.md of too
many or too long lines. Code, tables and headings have no sentences; `code` in a sentence is one word. In src/ only the
string literals are read, and only for the words: what a message is made of is not one sentence."""
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
    (r"(?<=. )(?<!\bthere )(is|are|was|were) no (?!longer|more|less|fewer|later|doubt|way)[a-z]", "is no …"),
    (r"(?<=. )(?<!\bthere )(is|are|was|were) none of\b", "is none of"),
]
MOST_WORDS_OF_README, MOST_WORDS = 30, 36
MOST_LINES_OF_README, LONGEST_LINE_OF_README = 110, 120
OTHER_PAGES = ("SECURITY.md", "HACKING.md", "CHANGELOG.md", "deploy/README.md", "models/owlet/README.md")
COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:[^"\\\n]|\\.)*)"|'
    r"'(?:[^'\\\n]|\\.)+'", re.DOTALL)
SCRIPT_COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?P<text>(?:[^"\\\n]|\\.)*)"|`(?P<raw>(?:[^`\\]|\\.)*)`', re.DOTALL)
BETWEEN_TEXTS = re.compile(r"[ \t]*\n[ \t]*")  # inside a literal that is written in two lines
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
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md")), *(root / name for name in OTHER_PAGES)]:
        yield from check_document(root, page)
    lines = (root / "README.md").read_text().splitlines()
    if len(lines) > MOST_LINES_OF_README:
        yield f"README.md: {len(lines)} lines, more than {MOST_LINES_OF_README}"
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE_OF_README:
            yield f"README.md:{number}: {len(line)} characters, more than {LONGEST_LINE_OF_README}"


def texts(source, comment_or_text=COMMENT_OR_TEXT):
    """(line number, text) of the string literals; those that the compiler puts together are one."""
    end, begin, whole = 0, 0, ""
    for found in comment_or_text.finditer(source):
        text = found["text"] if found["text"] is not None else found["raw"]
        if text is None:
            continue
        if whole and BETWEEN_TEXTS.fullmatch(source, end, found.start()):
            whole += text
        else:
            if whole:
                yield begin, whole
            begin, whole = source.count("\n", 0, found.start()) + 1, text
        end = found.end()
    if whole:
        yield begin, whole


def check_sources(root):
    for path in sorted((root / "src").rglob("*.cc")) + sorted((root / "src").rglob("*.h")):
        yield from check_lines(path.relative_to(root), texts(path.read_text()))
    for path in sorted((root / "src").rglob("*.mjs")):
        yield from check_lines(path.relative_to(root), texts(path.read_text(), SCRIPT_COMMENT_OR_TEXT))


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
    if options.documents:
        root = options.documents.resolve()
        problems += [*check_documents(root), *check_sources(root)]
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
