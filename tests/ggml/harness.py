"""What the tests of the llama.cpp plug-in share: where things are, and how stock programs are run with the plug-in."""
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "Once upon a time"
VARIABLES = ["GGML_TYTO_DEVICE", "GGML_TYTO_REQUIRE", "GGML_TYTO_MIN_N", "GGML_TYTO_MAX_N", "GGML_TYTO_MIN_MACS",
             "GGML_TYTO_FUSION", "GGML_TYTO_MACHINE", "GGML_TYTO_FAULT", "GGML_TYTO_TRACE", "GGML_TYTO_RECEIPT"]


@dataclass
class Places:
    """Set by run_tests.py before any test runs."""
    plugin: Path = ROOT / "build/release/libggml-tyto.so"
    llama_cpp: Path = ROOT / "build/llama.cpp"
    tyto: Path = ROOT / "build/release/tyto"
    device: str = "VXDNA0"
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tyto-ggml-")))


PLACES = Places()


def program(name):
    return PLACES.llama_cpp / "build/bin" / name


def environment(settings=None, plugin=True):
    """This process's without anything of ggml's, and what is asked for; GGML_TYTO_ is put before short names."""
    result = {key: value for key, value in os.environ.items() if not key.startswith("GGML_")}
    result["GGML_NO_BACKTRACE"] = "1"  # an abort of llama.cpp otherwise calls a debugger
    result["OMP_WAIT_POLICY"] = "passive"  # threads that spin for each other stand still on a machine that is busy
    if plugin:
        result["GGML_BACKEND_PATH"] = str(PLACES.plugin)
    for name, value in (settings or {}).items():
        result[name if name.isupper() and name.startswith(("GGML_", "LD_")) else f"GGML_TYTO_{name}"] = str(value)
    return result


def run(name, *args, settings=None, plugin=True, text="", timeout=120):
    result = subprocess.run([str(program(name)), *map(str, args)], input=text.encode(), capture_output=True,
                            timeout=timeout, env=environment(settings, plugin))
    result.stdout = result.stdout.decode(errors="replace")
    result.stderr = result.stderr.decode(errors="replace")
    return result


def tyto(*args, timeout=300):
    result = subprocess.run([str(PLACES.tyto), *map(str, args)], capture_output=True, text=True, timeout=timeout)
    if result.returncode != 0:
        raise RuntimeError(f"tyto {' '.join(map(str, args))}: {result.stderr.strip()}")


@functools.cache
def owlet(type_name):
    """The shipped model as a GGUF of this type."""
    path = PLACES.work / f"owlet-{type_name}.gguf"
    tyto("quantize", "-m", ROOT / "models/owlet", "--type", type_name, "-o", path)
    return path


# llama-completion ends without waiting for the thread that writes its text, so the last words may be missing. Tests ask
# for this many more tokens than they look at.
SPARE_TOKENS = 24


@dataclass
class Completion:
    result: subprocess.CompletedProcess
    receipt: dict  # None if no plug-in was asked for

    @property
    def text(self):
        return self.result.stdout


def complete(model, tokens=16, device=None, prompt=PROMPT, settings=None, flags=(), timeout=300):
    """Greedy text of `tokens` tokens by llama-completion. Fails the test if the program fails."""
    device = PLACES.device if device is None else device
    plugin = device != "none"
    settings = dict(settings or {})
    receipt = Path(tempfile.mkstemp(dir=PLACES.work, suffix=".json")[1])
    if plugin:
        settings.setdefault("RECEIPT", receipt)
    where = ["-dev", device] + (["-ngl", 99] if plugin else [])
    result = run("llama-completion", "-m", model, *where, "-t", 1, "-p", prompt, "-n", tokens, "--temp", 0, "--ignore-eos",
                 "-no-cnv", "--no-display-prompt", "--no-warmup", *flags, settings=settings, plugin=plugin,
                 timeout=timeout)
    if result.returncode != 0:
        raise AssertionError(f"llama-completion ended with {result.returncode}: {last_lines(result.stderr)}")
    return Completion(result, json.loads(Path(settings["RECEIPT"]).read_text()) if plugin else None)


def probe(model, tokens, first="none", second=None, prompt=PROMPT, settings=None):
    """Greedy tokens of the first device, and at each what the second says; see logits_probe.cc."""
    result = run("logits_probe", model, first, second or PLACES.device, tokens, settings=settings, text=prompt,
                 timeout=300)
    if result.returncode != 0:
        raise AssertionError(f"logits_probe ended with {result.returncode}: {last_lines(result.stderr)}")
    return json.loads(result.stdout)["steps"]


def text_of(steps):
    return b"".join(bytes.fromhex(step["piece"]) for step in steps).decode(errors="replace")


def last_lines(text, count=6):
    return "\n".join(text.strip().splitlines()[-count:])


def errors_of_ours(text):
    """The plug-in's own lines among llama.cpp's."""
    return [line for line in text.splitlines() if line.startswith("tyto: ")]


def mul_mat_count(receipt, key="offloaded"):
    return receipt["mul_mat"][key]


def have_room(megabytes_of_disk, megabytes_of_memory):
    """None, or the reason why there is not enough room."""
    disk = shutil.disk_usage(PLACES.work).free >> 20
    if disk < megabytes_of_disk:
        return f"{disk} MiB of disk are free, {megabytes_of_disk} are needed"
    available = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) >> 10
    if available < megabytes_of_memory:
        return f"{available} MiB of memory are available, {megabytes_of_memory} are needed"
    return None


class GgmlTest(unittest.TestCase):
    maxDiff = None

    def check_refused(self, result, *fragments):
        """llama.cpp ended with an error, and one line of ours says why."""
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertNotIn(result.returncode, (-6, -11), f"crashed: {last_lines(result.stderr)}")
        ours = errors_of_ours(result.stderr)
        self.assertEqual(len(ours), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, ours[0])
