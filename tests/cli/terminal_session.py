"""A program on a pseudo-terminal, with a user who types."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from harness import TYTO

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
BACKSPACE, ENTER, TAB, CTRL_A, CTRL_C, CTRL_D = "\x7f", "\r", "\t", "\x01", "\x03", "\x04"
PASTE, PASTE_END = "\x1b[200~", "\x1b[201~"
SEQUENCE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b[=>78]|[\x07\x0f]")
TIMEOUT = 60  # seconds for any wait; none is expected to come near


class Session:
    def __init__(self, *args, columns=80, rows=24, environment=None, term="xterm", program=TYTO):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(program, [program, *map(str, args)], {**os.environ, **(environment or {}), "TERM": term})
        self.shown = ""  # all of it
        self.seen = 0    # how much of it an expectation has passed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.terminal)
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)

    def read(self, seconds):
        """False when nothing more will come."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            raise AssertionError(f"nothing more within {seconds} s: {self.shown[-2000:]!r}")
        try:
            piece = os.read(self.terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            piece = b""
        self.bytes = getattr(self, "bytes", b"") + piece
        self.shown = self.bytes.decode(errors="ignore")
        return bool(piece)

    def shows(self, pattern, seconds):
        """Whether this is shown within `seconds` seconds, behind what was expected before."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.shown[self.seen:]):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                return False
            self.read(left)
        return True

    def expect(self, pattern):
        """Waits until this is shown behind what was expected before, and returns what was shown up to its end."""
        end = time.monotonic() + TIMEOUT
        while not (found := re.search(pattern, self.shown[self.seen:])):
            if not self.read(max(0.1, end - time.monotonic())):
                raise AssertionError(f"{pattern!r} is not in {self.shown[self.seen:]!r}")
        text = self.shown[self.seen:self.seen + found.end()]
        self.seen += found.end()
        return text

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def prompt(self):
        """Until a line can be typed: the editor asks for marks around pastes, and then draws."""
        return self.expect("\x1b\\[\\?2004h[^>…]*[>…] ")

    def say(self, keys):
        """Types a line and waits for the next prompt; what was shown between them."""
        self.type(keys + ENTER)
        return SEQUENCE.sub("", self.prompt()).replace("\r\n", "\n")

    def end(self):
        """The exit code, once the program has ended by itself."""
        while self.read(TIMEOUT):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def lines(self):
        """What was printed, as lines without what moves the cursor."""
        return [line.split("\r")[-1] for line in SEQUENCE.sub("", self.shown).replace("\r\n", "\n").split("\n")]
