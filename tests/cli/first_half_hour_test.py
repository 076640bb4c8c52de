#!/usr/bin/env python3
"""docs/first-half-hour.md: every command of the transcript is typed into a terminal of 80 columns, and shows what stands there.

A command is a line of a code block that begins with "$ ". Below it stands what is shown: "…" stands for any text in a line, or
for any lines on a line of its own. A line that begins with "> " is typed into a chat at its prompt.
"""
import re
import shutil
import tempfile
from pathlib import Path

from harness import OWLET, ROOT, TYTO, CliTest, main
from terminal_session import CTRL_C, CTRL_D, ENTER, SEQUENCE, Session

DOCUMENT = ROOT / "docs" / "first-half-hour.md"
COLUMNS = 80


def blocks():
    """(line number, command, lines shown) in the order of the document."""
    found = []
    for number, line in enumerate(DOCUMENT.read_text().splitlines(), 1):
        if not line.startswith("    "):
            continue
        line = line[4:]
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif found:
            found[-1][2].append(line)
    return found


def pattern_of(line):
    """A line as it is shown, with any text for each …, and any number of blanks between words."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
    return r"\s*.*?".join(parts)


def drawn(text):
    """The lines that are left on the screen; a line that was drawn again counts as it stands in the end."""
    lines = SEQUENCE.sub("", text).replace("\r\n", "\n").split("\n")
    return [line.split("\r")[-1].rstrip() for line in lines]


class FirstHalfHour(CliTest):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp(dir=self.work))
        for part in ("bin", "share/tyto/models", "work"):
            (self.home / part).mkdir(parents=True)
        shutil.copy(TYTO, self.home / "bin/tyto")  # a link would lead to the model beside the build
        (self.home / "share/tyto/models/owlet").symlink_to(OWLET)
        self.environment = {"HOME": str(self.home), "PATH": f"{self.home}/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
                            "PWD": str(self.home / "work"), "HF_ENDPOINT": "http://hub.invalid",
                            **{f"XDG_{kind}_HOME": str(self.home / kind.lower())
                               for kind in ("CACHE", "CONFIG", "DATA", "STATE")}}

    def shown_by(self, command, lines):
        script = f"cd {self.home}/work && {command}"
        with Session("-c", script, columns=COLUMNS, environment=self.environment, program="/bin/bash") as session:
            typed = [line[2:] for line in lines if line.startswith("> ")]
            for text in typed:
                session.prompt()
                session.type({"^C": CTRL_C, "^D": CTRL_D}.get(text, text + ENTER))
            code = session.end()
            return code, session.shown

    def check(self, number, command, lines):
        code, text = self.shown_by(command, lines)
        shown = drawn(text)
        where = f"{DOCUMENT.name}:{number}: {command}"
        for line in shown:
            self.assertLessEqual(len(line), COLUMNS, f"{where}: {line}")
        at, may_skip = 0, False
        for line in filter(str.strip, lines):
            if line.strip() == "…":
                may_skip = True
                continue
            wanted = re.compile(r"\s*" + pattern_of(line) + r"\s*")
            places = [i for i in range(at, len(shown)) if wanted.fullmatch(shown[i])]
            self.assertTrue(places, f"{where}: not shown: {line!r}; shown was:\n" + "\n".join(shown))
            between = [other for other in shown[at:places[0]] if other.strip()]
            self.assertTrue(may_skip or not between, f"{where}: before {line!r} came {between}")
            at, may_skip = places[0] + 1, False
        rest = [line for line in shown[at:] if line.strip()]
        self.assertTrue(may_skip or not rest, f"{where}: behind the last line came {rest}")
        return code

    def test_the_transcript(self):
        transcript = blocks()
        self.assertGreater(len(transcript), 12)
        for number, command, lines in transcript:
            with self.subTest(line=number, command=command):
                fails = re.search(r"# exit code (\d+)", command)
                code = self.check(number, command, lines)
                self.assertEqual(code, int(fails[1]) if fails else 0, command)


if __name__ == "__main__":
    main()
