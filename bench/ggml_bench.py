"""llama-bench with the plug-in loaded, for bench/ggml-context and bench/ggml-power: one run, its row and its receipt."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench_facts import ROOT, recorded

VIRTUAL = "VXDNA"


def stop(message):
    """One line, with what to do next."""
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def add_flags(parser):
    parser.add_argument("--llama-bench", required=True, metavar="PATH", help="of the llama.cpp that the plug-in was built for")
    parser.add_argument("--plugin", default=str(ROOT / "build/release/libggml-tyto.so"), metavar="PATH",
                        help="default: build/release/libggml-tyto.so (make plugin)")
    parser.add_argument("-m", "--model", required=True, metavar="FILE.gguf")
    parser.add_argument("-dev", "--device", default="XDNA0", metavar="NAMES",
                        help="one after the other, with commas: XDNA0, VXDNA0, Vulkan0, ... or none for the CPU; two at once as "
                             "A/B (default: XDNA0)")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("-ub", "--ubatch", type=int, default=512, metavar="N", help="tokens per graph (default: 512)")
    parser.add_argument("-r", "--repetitions", type=int, metavar="N", default=3)
    parser.add_argument("--timeout", type=int, default=1800, metavar="S", help="for one run (default: 1800)")
    parser.add_argument("-o", "--output", default=str(ROOT / "bench/results"), metavar="FOLDER",
                        help="raw data: every row with its receipt (default: bench/results)")


def parser_for(doc):
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def check(options):
    for path, next_step in ((options.llama_bench, "build llama.cpp, or give --llama-bench PATH"),
                            (options.plugin, "make plugin LLAMA_CPP=DIR, or give --plugin PATH"),
                            (options.model, "give -m FILE.gguf; `tyto quantize` and `tyto synth` make some")):
        if not Path(path).is_file():
            stop(f"{path} does not exist; {next_step}")
    if options.repetitions < 1:
        stop("-r: at least one repetition")
    options.devices = [name for name in options.device.split(",") if name]
    if not options.devices:
        stop("-dev: no device named; llama-bench --list-devices shows them")


@dataclass
class Run:
    """One llama-bench process: its row, and what the plug-in says ran where (None without the plug-in's device)."""
    command: list
    row: dict
    receipt: dict

    @property
    def is_virtual(self):
        return bool(self.receipt and self.receipt.get("is_virtual"))

    @property
    def tokens(self):
        return (self.row["n_prompt"] + self.row["n_gen"]) * len(self.row["samples_ns"])

    @property
    def wall_seconds(self):
        return sum(self.row["samples_ns"]) / 1e9

    def modelled_parts(self):
        """Seconds that the NPU would take by the cost model, and seconds of everything else as this machine took them."""
        modelled, simulated = self.receipt.get("modelled_seconds"), self.receipt.get("simulated_seconds")
        if modelled is None or simulated is None:
            stop("the receipt of the virtual NPU has no modelled_seconds and simulated_seconds; are plug-in and script of one version?")
        rest = self.wall_seconds - simulated
        if rest < 0:
            stop(f"the receipt counts {simulated:.3f} s of simulation and llama-bench {self.wall_seconds:.3f} s in all; run it again")
        return modelled, rest

    def record(self, model):
        """The row for the file. Of a simulation llama-bench's speeds are left out: they are nobody's."""
        row = dict(self.row)
        if self.is_virtual:
            for name in ("avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"):
                row.pop(name, None)
            row["simulation_wall_seconds"] = self.wall_seconds
        row.pop("model_filename", None)
        return {"command": recorded(self.command, model), "llama_bench": row, "receipt": self.receipt}


def is_ours(device):
    return any(name.startswith(("XDNA", VIRTUAL)) for name in device.split("/"))


def command_of(options, device, flags):
    command = [options.llama_bench, "-m", options.model, "-t", str(options.threads), "-ub", str(options.ubatch), "-r",
               str(options.repetitions), "-o", "json", "-dev", device, "-ngl", "0" if device == "none" else "99", *flags]
    # A virtual NPU has nothing to warm up, and its receipt then holds the timed runs alone.
    return command + ["--no-warmup"] if VIRTUAL in device else command


def environment_of(options, receipt):
    result = {**os.environ, "GGML_BACKEND_PATH": str(Path(options.plugin).resolve())}
    result["GGML_TYTO_RECEIPT"] = str(receipt)
    return result


def read_receipt(path, device):
    if not is_ours(device):
        return None
    if not path.is_file() or path.stat().st_size == 0:
        stop(f"{device} left no receipt, so nothing says where the work ran; is {device} in `llama-bench --list-devices`?")
    return json.loads(path.read_text())


def failure(command, result):
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("tyto: ")]
    reason = (ours or lines or ["it said nothing"])[-1].strip()
    return f"{Path(command[0]).name} ended with {result.returncode}: {reason}; `{' '.join(command)}` shows all of it"


def run(options, device, flags):
    command = command_of(options, device, flags)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "receipt.json"
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout,
                                    env=environment_of(options, path))
        except subprocess.TimeoutExpired:
            stop(f"{device} {' '.join(flags)} took more than {options.timeout} s; raise --timeout, or take a smaller model")
        if result.returncode != 0:
            stop(failure(command, result))
        rows = json.loads(result.stdout)
        if len(rows) != 1:
            stop(f"llama-bench gave {len(rows)} rows where one was asked for")
        return Run(command, rows[0], read_receipt(path, device))
