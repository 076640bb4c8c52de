"""One case of the attack: a folder of its own, runs of the program in it, and the laws that every run is held to."""
import hashlib
import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path


def peak_buffer_bytes():
    """What `profile` reads to measure the memory's speed: bytes_to_read in src/device/cpu/measured_peak.cc."""
    try:
        cache = int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip().rstrip("K")) << 10
    except OSError:
        cache = 0
    return min(2 << 30, max(256 << 20, (64 << 20) * (os.cpu_count() or 1), 4 * cache))


@dataclass
class Limits:
    """One run's limits. Resident memory is judged when it has ended; the hard limit keeps the machine alive until then."""
    seconds: float = 30
    rss_bytes: int = (512 << 20) + peak_buffer_bytes()
    address_space_bytes: int = 8 << 30
    environment: dict = field(default_factory=dict)


def limits_of(program):
    """A sanitizer's build is slower, keeps freed memory and reserves most of the address space."""
    if re.search(rb"__(asan|tsan)_init", Path(program).read_bytes()):
        options = os.environ.get("ASAN_OPTIONS", "") + ":hard_rss_limit_mb=3072"
        return Limits(seconds=120, rss_bytes=2 << 30, address_space_bytes=resource.RLIM_INFINITY,
                      environment={"ASAN_OPTIONS": options})
    return Limits()


@dataclass
class Run:
    arguments: list
    code: int  # negative: the signal that ended it
    out: bytes
    err: bytes
    seconds: float
    rss_bytes: int
    timed_out: bool
    sent: int = 0  # the signal that the trial sent
    heard: bool = True  # stderr is read
    outcome: str = ""

    @property
    def command(self):
        return self.arguments[0] if self.arguments else ""

    @property
    def lines(self):
        """The lines of stderr. A chat's prompts are no lines of their own."""
        text = re.sub(r"^(> )+", "", self.err.decode(errors="replace"), flags=re.MULTILINE)
        return [line for line in text.splitlines() if line.strip()]


# Commands whose exit code 1 is a verdict: what was found is on stdout, and notes may stand on stderr.
VERDICTS = {"verify", "diagnose", "doctor", "validate", "kernels", "results", "receipt"}
# What these wrote before they failed was true: streamed text, measured rows.
STREAMS = {"run", "chat", "bench", "profile", "power"}
# Bytes for other programs, not text for people.
EXACT_STDOUT = {"detokenize", "template"}

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CLAIM = re.compile(r"executed on.*(?: \(|: )0 of \d+ submissions completed")


def unprintable(data):
    try:
        return UNPRINTABLE.search(data.decode()) is not None
    except UnicodeDecodeError:
        return True


def strict_json(text):
    """A value, or ValueError: Python alone would take NaN and Infinity."""
    def refuse(constant):
        raise ValueError(constant + " is no JSON")
    return json.loads(text, parse_constant=refuse)


def one_line_of_error(run):
    lines = run.lines
    if run.command == "chat" or run.command in VERDICTS:
        return not lines or run.command in VERDICTS or lines[-1].startswith("tyto: ")
    return len(lines) == 1 and lines[0].startswith("tyto: ")


def requires_npu(run):
    return any(a == "--require" and b.startswith("npu") or a.startswith("--require=npu")
               for a, b in zip(run.arguments, run.arguments[1:] + [""]))


def lists_what_is_missing(run):
    """inspect shows what can be read of a model that does not run, and what is missing for that."""
    return run.command == "inspect" and b"missing" in run.out


# Each law is what must never happen, and how it is seen.
LAWS = [
    ("ran past its time limit", lambda run, limits: run.timed_out),
    ("was ended by a signal",
     lambda run, limits: not run.timed_out and run.code < 0 and run.code != -run.sent),
    ("has an exit code that is not 0, 1, 2 or 3", lambda run, limits: run.code > 3),
    ("broke a promise between its own parts",
     lambda run, limits: b"internal error" in run.err or b"terminate called" in run.err),
    ("was reported by a sanitizer", lambda run, limits: b"Sanitizer" in run.err or b"runtime error:" in run.err),
    ("took too much memory", lambda run, limits: run.rss_bytes > limits.rss_bytes),
    ("wrote control characters or broken UTF-8 to stderr", lambda run, limits: unprintable(run.err)),
    ("wrote control characters or broken UTF-8 to stdout",
     lambda run, limits: run.command not in EXACT_STDOUT and unprintable(run.out)),
    ("failed without exactly one line of error",
     lambda run, limits: run.heard and run.code in (1, 2, 3) and not one_line_of_error(run)),
    ("failed, and yet left a result on stdout",
     lambda run, limits: run.heard and run.code in (1, 2, 3) and run.out.strip() != b""
     and run.command not in VERDICTS | STREAMS and not lists_what_is_missing(run)),
    ("named a device as executing that completed nothing",
     lambda run, limits: CLAIM.search((run.err + run.out).decode(errors="replace")) is not None),
    ("passed with --require npu, which this machine has not",
     lambda run, limits: run.code == 0 and requires_npu(run)),
]


@dataclass
class Violation:
    law: str
    command: str  # the program's, to be run in the case's folder
    said: str


@dataclass
class Trial:
    program: str
    stock: object  # whole inputs, see stock.py
    limits: Limits
    name: str  # family/kind/number
    seed: int
    folder: Path
    runs: list = field(default_factory=list)
    violations: list = field(default_factory=list)

    def __post_init__(self):
        self.random = random.Random(f"{self.seed}/{self.name}")

    def environment(self, extra):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TYTO_", "XDG_", "HF_"))}
        here = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
        return {**kept, **self.limits.environment, **{key: str(self.folder / value) for key, value in here.items()},
                **extra}

    def words(self, arguments):
        """Files that every case reads are named so that the command holds in a kept folder too."""
        return [os.path.relpath(a, self.folder) if isinstance(a, Path) else str(a) for a in arguments]

    def start(self, *arguments, before="", after="", environment=None, stdin=subprocess.DEVNULL):
        """`before` and `after` are a shell's limits and redirections, made before it becomes the program."""
        command = [self.program, *self.words(arguments)]
        if before or after:
            command = ["/bin/sh", "-c", f'{before} exec "$@" {after}', "sh", *command]
        out, err = (self.folder / name for name in (".stdout", ".stderr"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            return subprocess.Popen(command, cwd=self.folder, stdin=stdin, stdout=out_file, stderr=err_file,
                                    env=self.environment(environment or {}), restore_signals=True)

    def finish(self, process, arguments, began, sent=0, heard=True):
        late = threading.Timer(self.limits.seconds, process.kill)
        late.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        run = Run(self.words(arguments), process.returncode, (self.folder / ".stdout").read_bytes(),
                  (self.folder / ".stderr").read_bytes(), seconds, usage.ru_maxrss << 10,
                  process.returncode == -signal.SIGKILL and seconds >= self.limits.seconds, sent, heard)
        run.outcome = "ran correctly" if run.code == 0 else "refused cleanly"
        self.runs.append(run)
        for law, broken in LAWS:
            if broken(run, self.limits):
                self.violate(run, law)
        return run

    def run(self, *arguments, text="", heard=True, **how):
        """Runs the program to its end and holds it to the laws."""
        with (self.folder / ".stdin").open("w+b") as stdin:
            stdin.write(text.encode())
            stdin.seek(0)
            began = time.monotonic()
            return self.finish(self.start(*arguments, stdin=stdin, **how), arguments, began, heard=heard)

    def violate(self, run, law, detail=""):
        run.outcome = "VIOLATION"
        lines = (run.err or run.out).decode(errors="replace").strip().splitlines()
        said = ascii(lines[-1][:240]) if lines else "nothing said"
        self.violations.append(Violation(law, "tyto " + shlex.join(run.arguments),
                                         f"exit {run.code}: {said}" + (f"; {detail}" if detail else "")))

    def settle(self, run, outcome):
        """Another name for what came of a run, if it broke no law."""
        if run.outcome != "VIOLATION":
            run.outcome = outcome

    def demand(self, run, holds, law, detail=""):
        if not holds:
            self.violate(run, law, detail)
        return holds

    def must_refuse(self, run, what):
        return self.demand(run, run.code != 0, f"accepted {what}")

    def read_json(self, run, path):
        """What a run wrote; None, and a violation, when it is no JSON."""
        try:
            return strict_json(Path(path).read_text())
        except (OSError, ValueError) as error:
            self.violate(run, "wrote a file that is no JSON", str(error)[:120])
            return None


def digest(path):
    """The hash of a file, or of every file in a folder with its name."""
    path = Path(path)
    if path.is_dir():
        return {str(p.relative_to(path)): digest(p) for p in sorted(path.rglob("*")) if p.is_file()}
    return hashlib.blake2b(path.read_bytes()).hexdigest()


def ordinary_process(limits):
    """What the runs inherit: no core files, and SIGINT as a terminal would send it, even below a shell's `&`."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.address_space_bytes, limits.address_space_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
