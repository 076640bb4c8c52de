"""What the tests of the program share. Each file is run on its own:

    FILE_test.py PATH_TO_TYTO FIXTURES_FOLDER [-k PATTERN]
"""
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

TYTO, FIXTURES = sys.argv[1], Path(sys.argv[2])
STATE = tempfile.TemporaryDirectory()  # results go here, not to the user's ledger
CACHE = tempfile.TemporaryDirectory()  # and what is kept between runs here
# The terminals of these tests are not the one in which they were started.
os.environ.update(XDG_STATE_HOME=STATE.name, XDG_CACHE_HOME=CACHE.name, TERM="xterm")
ROOT = Path(__file__).resolve().parents[2]
OWLET = ROOT / "models" / "owlet"


def on_hostile_npu(args):
    """The virtual NPU of the tests treats mistakes as a real one would."""
    args = list(map(str, args))
    flags = ("--device", "--prefill-device", "--decode-device", "--ab")
    asks = any(a in flags and "vnpu" in b.split(",") for a, b in zip(args, args[1:]))
    return [*args, "--vnpu-hostile", "on"] if asks and "compile" not in args else args


def tyto(*args, text="", environment=None):
    result = subprocess.run([TYTO, *on_hostile_npu(args)], input=text.encode(), capture_output=True, timeout=120,
                            env={**os.environ, **(environment or {})})
    result.stdout = result.stdout.decode(errors="replace")
    result.stderr = result.stderr.decode(errors="replace")
    return result


def shown_on(terminal):
    """All that is written to a terminal until no process has it open any more."""
    text = b""
    try:
        while piece := os.read(terminal, 4096):
            text += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(terminal)
    return text.decode()


def on_terminal(*args, columns=0, stream="stdout"):
    """What a terminal gets from the program's stdout or stderr."""
    ours, theirs = pty.openpty()
    if columns:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    process = subprocess.Popen([TYTO, *map(str, args)], stdin=subprocess.DEVNULL, **streams)
    os.close(theirs)
    text = shown_on(ours)
    process.communicate(timeout=60)
    return text.replace("\r\n", "\n")


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = Path(cls.folder.name)
        cls.model = cls.work / "tiny.gguf"
        assert tyto("synth", "--shape", "tiny", "-o", cls.model).returncode == 0

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def need(self, program):
        """Skips the test, and says so, where a program that only tests use is not installed."""
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            print(f"{self.id()}: skipped, {program} is not installed", file=sys.stderr)
            self.skipTest(f"{program} is not installed")

    def check_error(self, result, code, *fragments):
        """A bad thing gets the exit code and exactly one line on stderr; stdout stays empty."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)


def write_tree(root, files):
    """A folder that looks like a machine's /."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
