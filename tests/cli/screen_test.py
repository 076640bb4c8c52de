#!/usr/bin/env python3
"""What a person sees: tables that fit the terminal, bars that go away, colours only where they are wanted, quiet ends."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unicodedata

from harness import OWLET, TYTO, CliTest, main, on_hostile_npu, tyto

BAR = re.compile(r"\[#*\.*\] +\d+%|…( \d+ s)?$")
COLOUR = re.compile("\x1b\\[(1|2|31|32|0)m")


class Screen:
    """A terminal as far as the program may use one: lines, carriage returns, erasing to the end of a line, colours."""

    def __init__(self, columns):
        self.columns, self.raw, self.lines, self.at = columns, "", [[]], 0

    def show(self, text):
        self.raw += text
        text = COLOUR.sub("", text)
        while text:
            if text.startswith("\x1b[K"):
                del self.lines[-1][self.at:]
                text = text[3:]
                continue
            character, text = text[0], text[1:]
            if character == "\r":
                self.at = 0
            elif character == "\n":
                self.lines.append([])
                self.at = 0
            else:
                assert character >= " ", f"{character!r} in {self.raw!r}"
                self.put(character)

    def put(self, character):
        if unicodedata.combining(character):
            return
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        assert self.at + width <= self.columns, f"wider than {self.columns}: {''.join(self.lines[-1])!r}"
        self.lines[-1][self.at:self.at + width] = [character] + [""] * (width - 1)
        self.at += width

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


def on_terminal(columns, *args, environment=None, until=None):
    """The screen and the exit code, with stdout and stderr on a terminal. At `until` it is interrupted."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen([TYTO, *on_hostile_npu(args)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**clean, "TERM": "xterm", **(environment or {})})
    os.close(theirs)
    raw = b""
    try:
        while piece := os.read(ours, 65536):
            raw += piece
            if until and until.encode() in raw:
                process.send_signal(signal.SIGINT)
                until = None
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(ours)
    code = process.wait(timeout=60)
    screen = Screen(columns)
    screen.show(raw.decode())
    return screen, code


class ScreenTest(CliTest):
    def setUp(self):
        self.text = self.work / "text.txt"
        self.text.write_text("The owl looked down at the river. " * 8)

    def commands(self):
        """Those that print tables or take their time; the model is small, so that all of them are quick."""
        model = ["-m", self.model]
        return {
            "inspect": ["inspect", *model, "--tensors"],
            "devices": ["devices"],
            "bench": ["bench", *model, "-p", "8", "-n", "2", "-r", "2"],
            "bench, sequences": ["bench", *model, "-p", "0", "-n", "0", "-pg", "4,2", "--sequences", "1,2", "-r", "1"],
            "results": ["results", "list"],
            "verify": ["verify", "-m", OWLET, "-n", "2"],
            "diagnose": ["diagnose", *model, "-n", "1", "-p", "abc"],
            "profile": ["profile", *model, "--raw", "-p", "x", "-n", "2"],
            "doctor": ["doctor", "--root", self.work],
            "kernels": ["kernels", "list"],
            "eval": ["eval", *model, "--ids", "1,2,3", "--logits", self.work / "logits", "--force"],
        }

    def check_screen(self, name, screen, code):
        self.assertIn(code, (0, 1) if name == "doctor" else (0,), screen.text())
        for line in screen.text().splitlines():
            self.assertIsNone(BAR.search(line), line)

    def test_nothing_is_wider_than_the_terminal_and_no_bar_is_left(self):
        for name, command in self.commands().items():
            for columns in (40, 80):
                with self.subTest(name=name, columns=columns):
                    self.check_screen(name, *on_terminal(columns, *command))

    def test_bars_say_what_is_being_done(self):
        for words, command in (("loading weights", ["run", "-m", self.model, "--raw", "-p", "abc", "-n", "2", "--temp", "0"]),
                               ("reading the prompt", ["run", "-m", self.model, "--raw", "-p", "abc", "-n", "2"]),
                               ("reading the text", ["embed", "-m", self.model, "-p", "abc"]),
                               ("prompt 2 of 2: the reference computes", ["verify", "-m", OWLET, "-n", "2"]),
                               ("the reference computes", ["diagnose", "-m", self.model, "-n", "1", "-p", "abc"]),
                               ("pp8 on cpu", ["bench", "-m", self.model, "-p", "8", "-n", "0", "-r", "2"]),
                               ("hashing the model", ["bench", "-m", self.model, "-p", "8", "-n", "0", "-r", "1"]),
                               ("opening the model", ["perplexity", "-m", self.model, "-f", self.text, "--window", "64",
                                                      "--stride", "32"])):
            with self.subTest(words=words):
                # What they print is not looked at here. No hash is kept, so that one is made.
                screen, code = on_terminal(20000, *command, environment={"XDG_CACHE_HOME": "/dev/null"})
                self.assertIn(words, screen.raw)
                self.assertEqual(code, 0, screen.text())
                self.assertNotIn(words, screen.text())

    def test_a_bar_is_erased_by_errors_and_by_interrupts(self):
        screen, code = on_terminal(20000, "run", "-m", self.model, "--raw", "-p", "x", "-c", "1000000")
        self.assertEqual(code, 2)
        self.assertIn("opening the model", screen.raw)
        self.assertEqual(screen.text().strip().splitlines()[0][:5], "tyto:")
        screen, code = on_terminal(80, "bench", "-m", self.model, "-p", "64", "-n", "0", "-r", "1000", until="pp64 on cpu [")
        self.assertEqual(code, -signal.SIGINT)
        self.assertEqual(screen.text().strip(), "")

    def test_colours(self):
        command = ["inspect", "-m", self.model, "--tensors"]
        self.assertIn("\x1b[1mtensor", on_terminal(80, *command)[0].raw)
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", on_terminal(80, *command, environment=environment)[0].raw)
        run = ["run", "-m", self.model, "--raw", "-p", "abc", "-n", "2", "--temp", "0"]
        self.assertNotIn("m", re.sub("\x1b\\[K", "", "".join(re.findall("\x1b\\[[^a-zA-Z]*[a-zA-Z]", on_terminal(
            80, *run, environment={"NO_COLOR": "1"})[0].raw))))
        self.assertNotIn("\x1b", on_terminal(80, *run, environment={"TERM": "dumb"})[0].raw)

    def test_what_is_piped_is_plain_and_whole(self):
        for name, command in self.commands().items():
            with self.subTest(name=name):
                result = tyto(*command)
                for stream in (result.stdout, result.stderr):
                    self.assertNotRegex(stream, "[\x1b\r]|hidden columns|…")

    def test_a_closed_pipe_ends_quietly(self):
        receipt = self.work / "receipt.json"
        for command in (["--help"], ["devices"], ["inspect", "-m", self.model, "--tensors"],
                        ["inspect", "-m", self.model, "--json"],
                        ["run", "-m", self.model, "--raw", "-p", "x", "-n", "2", "--receipt", receipt],
                        ["bench", "-m", self.model, "-p", "4", "-n", "0", "-r", "1", "-o", "csv"],
                        ["detokenize", "-m", self.model, "--ids", "1,2"]):
            with self.subTest(command=command):
                ours, theirs = os.pipe()
                os.close(ours)
                result = subprocess.run([TYTO, *map(str, command)], stdin=subprocess.DEVNULL, stdout=theirs,
                                        stderr=subprocess.PIPE, timeout=60)
                os.close(theirs)
                self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))
        self.assertEqual([path.name for path in self.work.iterdir() if path.name.startswith("receipt")], [])


if __name__ == "__main__":
    main()
