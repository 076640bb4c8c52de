#!/usr/bin/env python3
"""Every example in --help, README.md and docs/ does what it says, on small models of the names that it uses."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import examples
from harness import ROOT, main, tyto

# (pattern, why): what cannot be run here. A row that matches no example is an error.
NOT_RUN = [
    (r"^tyto serve\b", "a server stays; cli.serve, cli.server_docs and cli.deploy start it"),
    (r"^tyto (run|verify)\b.* --device npu\b", "needs an NPU"),
    (r"completions (zsh\)|fish \| source)$", "of another shell; cli.shells runs it there"),
    (r"^tyto power\b", "needs a power rail, and half a minute; cli.energy has recorded ones"),
]
# (pattern, in its place, why): the same command with less work, or on what every machine has.
SHORTER = [
    (r"(?<=bench --device vulkan)$", " --gpu llvmpipe -p 16 -n 2 -r 1", "in software, and little of it"),
    (r"(?<=--device vulkan)$", " --gpu llvmpipe -n 4", "in software: a GPU is not on every machine"),
    (r"(?<=--prefill-device vulkan)", " --gpu llvmpipe -n 4", "the same"),
    (r"(?<=compile --device npu -m )MODEL", "large", "MLIR-AIR builds for a few models only"),
    (r"(?<=synth )--shape llama-3.2-1b", "--shape tiny", "it writes gigabytes"),
    (r"\btyto (run|chat)\b(?!.*( -n |--json-schema|--grammar))", r"tyto \1 -n 8", "random models end no answer"),
]
# (pattern, code, why)
EXIT_CODES = [
    (r"^tyto doctor\b", (0, 1), "it says whether this machine is in order"),
    (r"^tyto results check --trust", (1,), "other examples left rows without a signature"),
]


# `make` in another project's folder.
NOT_OUR_TARGETS = {"compile-decode", "compile-decode-windows", "compile-decode-dynseq",
                   "compile-decode-elf", "preflight-llvm-link"}


class Used:
    """The rows of a table that matched something."""

    def __init__(self, rows):
        self.rows, self.used = rows, set()

    def row_for(self, text):
        for row in self.rows:
            if re.search(row[0], text):
                self.used.add(row)
                return row
        return None

    def stale(self):
        return [row[0] for row in self.rows if row not in self.used]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.sandbox = examples.Sandbox(Path(cls.folder.name))

    def test_every_example(self):
        skipped, shorter, codes = Used(NOT_RUN), Used(SHORTER), Used(EXIT_CODES)
        commands = {}  # each is run once, wherever it is shown
        for example in [*examples.help_examples(), *examples.document_examples()]:
            commands.setdefault(example.text, example)
        self.assertGreater(len(commands), 60)
        for number, (text, example) in enumerate(commands.items()):
            if row := skipped.row_for(text):
                print(f"not run: {example}: {row[1]}", file=sys.stderr)
                continue
            if row := shorter.row_for(text):
                print(f"shorter: {example}: {row[2]}", file=sys.stderr)
                text = re.sub(row[0], row[1], text)
            allowed = codes.row_for(text)
            with self.subTest(example=str(example)):
                self.check_flags(example)
                result = self.sandbox.run(self.sandbox.with_ids(examples.runnable(text, number)))
                self.assertIn(result.returncode, allowed[1] if allowed else (0,), result.stderr[-800:])
        self.assertEqual(skipped.stale() + shorter.stale() + codes.stale(), [], "rows that match no example")

    def check_flags(self, example):
        """What an example calls optional is not run, but it is there."""
        flags = examples.optional_flags(example.text)
        if not flags:
            return
        path = re.match(r"tyto((?: [a-z]+)+)", example.text)[1].split()
        shown = tyto(*path, "--help-all").stdout
        for flag in flags:
            self.assertRegex(shown, rf"(?m)^  (-\w, )?{flag}\b", example.text)

    def test_every_make_target(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = {name for line in re.findall(r"^([a-z][-a-z ]*):(?!=)", makefile, re.MULTILINE) for name in line.split()}
        named = dict(map(reversed, examples.make_targets()))
        for target, where in named.items():
            if target not in NOT_OUR_TARGETS:
                self.assertIn(target, targets, where)
        self.assertLessEqual(NOT_OUR_TARGETS, named.keys())
        self.assertFalse(NOT_OUR_TARGETS & targets)

    def test_every_script_says_what_it_does(self):
        for script, where in {script: where for where, script in examples.scripts()}.items():
            with self.subTest(script=script, where=where):
                result = subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, timeout=60)
                self.assertEqual(result.returncode, 0, f"{script}: {result.stderr[-300:]}")


class Help(unittest.TestCase):
    def test_it_fits_80_columns(self):
        for path, text in examples.help_texts("--help-all"):
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, f"tyto {' '.join(path)} --help-all: {line}")

    def test_commands_name_themselves_in_full(self):
        for path, text in examples.help_texts():
            if path:
                self.assertTrue(text.startswith(f"tyto {' '.join(path)}: "), text[:80])


if __name__ == "__main__":
    main()
