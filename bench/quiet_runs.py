"""One run of a benchmark program after the other, each while the machine is quiet enough or patience has run out."""
import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path


def stop(message):
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def busy_seconds():
    """Of all cores since they were started, whoever used them."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rows_of(command, output):
    """llama-bench's JSON; nothing but a list of rows is one."""
    try:
        rows = json.loads(output)
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            return rows
    except ValueError:
        pass
    stop(f"`{' '.join(command)}` printed no JSON list of rows: {output.strip()[:200] or 'nothing at all'}")


def run(command, timeout):
    """The rows, and the share of the processor that others took meanwhile."""
    start, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(f"`{' '.join(command)}` took more than {timeout} s; give --timeout more")
    except OSError as error:
        stop(f"{command[0]} cannot be run: {error.strerror}")
    others = (busy_seconds() - busy) - (own_seconds() - own)
    share = max(0.0, others / (time.monotonic() - start) / os.cpu_count())
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        stop(f"`{' '.join(command)}` ended with {result.returncode}: {reason}")
    return rows_of(command, result.stdout), share


@contextmanager
def locked(path, timeout):
    """Other measurements that hold the same file's lock wait meanwhile."""
    if not path:
        yield
        return
    with open(path, "a") as file:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    stop(f"{path} was locked for {timeout} s; give --timeout more, or end what holds it")
                time.sleep(0.05)
        yield


class Patience:
    """Seconds left to wait and to repeat for the sake of quiet."""

    def __init__(self, seconds, quiet, timeout, lock=None):
        self.left, self.quiet, self.timeout, self.lock = float(seconds), quiet, timeout, lock

    def wait_for_quiet(self):
        """Until others have been quiet for two seconds."""
        while self.left > 0:
            busy, start = busy_seconds(), time.monotonic()
            time.sleep(2)
            share = (busy_seconds() - busy) / (time.monotonic() - start) / os.cpu_count()
            if share <= self.quiet:
                return
            self.left -= time.monotonic() - start

    def run(self, command):
        while True:
            self.wait_for_quiet()
            with locked(self.lock, self.timeout):
                start = time.monotonic()
                rows, share = run(command, self.timeout)
            if share <= self.quiet or self.left <= 0:
                return rows, share
            self.left -= time.monotonic() - start
