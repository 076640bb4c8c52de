"""A running `tyto serve`, for the tests that talk to one."""
import re
import subprocess
import threading
import time

from harness import OWLET, TYTO, on_hostile_npu

LONGEST_START_SECONDS = 120


class Serving:
    """The shipped model, or others, on a free port; `log` is what the server wrote to stderr."""

    def __init__(self, *flags, models=(f"owlet={OWLET}",), config="none", limit=None):
        self.log, self.url, self.is_ready = [], None, threading.Event()
        named = [word for model in models for word in ("-m", model)]
        self.process = subprocess.Popen([TYTO, "serve", *named, "--port", "0", "--config", str(config), *on_hostile_npu(flags)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if not self.is_ready.wait(LONGEST_START_SECONDS) or self.process.poll() is not None:
            self.stop()
            raise AssertionError("tyto serve did not start: " + "".join(self.log))

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found.group(1)
            if line.startswith("ready in"):
                self.is_ready.set()
        self.is_ready.set()

    def wait_for_log(self, text, times=1):
        """Until the log holds this text that number of times."""
        for _ in range(600):
            if "".join(self.log).count(text) >= times:
                return
            time.sleep(0.05)
        raise AssertionError(f"no {text!r} in: " + "".join(self.log))

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.reader.join(60)
            self.process.stderr.close()
