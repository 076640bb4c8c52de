"""The plug-in's column of fault_matrix.py: faults inside a stock llama.cpp program, where that and the plug-in are built.

llama.cpp has no way to be told of a graph that should be tried again, so a fault that is noticed ends the program with a
line of ours, and no crash. With single GEMMs every wrong sum is noticed.
"""
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ggml"))
import harness

TOKENS, SECONDS = 4, 300
CRASHES = (-6, -11)  # SIGABRT, SIGSEGV
HARMLESS = "slowx4"


def complete(fault=None):
    settings = {"DEVICE": "VXDNA0", "FUSION": "op", **({"FAULT": fault} if fault else {})}
    return harness.run("llama-completion", "-m", harness.owlet("q8_0"), "-dev", "VXDNA0", "-ngl", 99, "-t", 1, "-p",
                       harness.PROMPT, "-n", TOKENS, "--temp", 0, "--ignore-eos", "-no-cnv", "--no-display-prompt",
                       "--no-warmup", settings=settings, timeout=SECONDS)


def judge(fault):
    """What came of it, and what is wrong with that, if anything."""
    try:
        done = complete(fault)
    except subprocess.TimeoutExpired:
        return "still running", f"after {SECONDS} s"
    ended = done.returncode != 0
    found = f"{'ended' if ended else 'not noticed'}, {done.returncode}"
    if done.returncode in CRASHES:
        return found, "it crashed"
    if ended == (fault == HARMLESS):
        return found, "should have been not noticed" if ended else "should have ended"
    if ended and not harness.errors_of_ours(done.stderr):
        return found, "no line of ours says why"
    return found, ""


def judge_all(tyto, faults):
    """By fault. Nothing is wrong with a plug-in that is not there."""
    harness.PLACES.tyto = Path(tyto).resolve()
    missing = [path.name for path in (harness.PLACES.plugin, harness.program("llama-completion")) if not path.exists()]
    if missing:
        return dict.fromkeys(faults, (f"not run: {missing[0]} is not built", ""))
    return {fault: judge(fault) for fault in faults}
