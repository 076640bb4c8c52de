#!/usr/bin/env python3
"""Every fault of the virtual NPU in every command and every form of the device: what comes of it, beside what should.

    fault_matrix.py PATH_TO_TYTO FIXTURES_FOLDER [--every N] [--write FILE]

What should come of a fault is data (EXPECTED, below), with the policy that users have: --on-device-error retry. The answer
after a fault that was retried is the one without it. Exit code 1 when anything is otherwise.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import faults
import plugin_faults

RETRIED, ENDED, UNNOTICED = "retried", "ended", "not noticed"
# A fault at the first dispatch, and one after several that went well; every command makes at least five.
FAULTS = [*(f"{kind}@{at}" for kind in ("timeout", "error", "hang", "context-lost", "corrupt", "flip") for at in (1, 5)),
          "oom", "slowx4", "slowx1e9"]
COMMANDS = ("run", "chat", "bench", "eval", "verify")
SECONDS = 120  # that a run may take, on a busy machine with sanitizers

EXPECTED = {
    **dict.fromkeys(("timeout", "error", "hang", "context-lost", "corrupt"), RETRIED),
    "flip": UNNOTICED,  # finite values, which nothing but a guard looks at
    "oom": ENDED,  # weights that do not fit are no failed dispatch
    "slowx4": UNNOTICED,
    "slowx1e9": ENDED,  # too slow once is too slow again
}
# Sums of integers are exact, so a wrong one shows.
EXPECTED_OF_INT8 = {**EXPECTED, "flip": RETRIED}
# A device that failed on the way has not passed; whether a flipped bit is seen by the gate depends on the bit.
CODES_OF_VERIFY = {RETRIED: {1}, ENDED: {1}, UNNOTICED: {0, 1}}
CODES = {RETRIED: {0}, ENDED: {1}, UNNOTICED: {0}}


@dataclass
class Cell:
    fault: str
    form: tuple  # fusion, weights
    command: str

    @property
    def kind(self):
        return self.fault.split("@")[0]

    @property
    def expected(self):
        return (EXPECTED_OF_INT8 if self.form[1] == "int8" else EXPECTED)[self.kind]


@dataclass
class Outcome:
    code: int
    what: str
    result: bytes  # what the user asked for, as far as two runs may be compared


class Bench:
    """Runs the program, each time in a folder of its own."""

    def __init__(self, program, model):
        self.program, self.model = Path(program).resolve(), Path(model).resolve()

    def run(self, command, form, fault=None):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            flags = [*faults.COMMANDS[command], "-m", self.model, *faults.device_flags(form)]
            flags += ["--vnpu-fault", fault] if fault else []
            try:
                done = subprocess.run([self.program, *map(str, flags)], input=faults.WORDS.get(command, "").encode(),
                                      capture_output=True, cwd=folder, timeout=SECONDS, check=False,
                                      env={**os.environ, "XDG_STATE_HOME": name, "XDG_CACHE_HOME": name})
            except subprocess.TimeoutExpired:
                return Outcome(-1, f"still running after {SECONDS} s", b"")
            return Outcome(done.returncode, said(command, done, folder), result_of(command, done, folder))

    @cache
    def undisturbed(self, command, form):
        outcome = self.run(command, form)
        if outcome.code != 0:
            sys.exit(f"{command} fails without a fault, at {' '.join(form)}")
        return outcome.result


def said(command, done, folder):
    """What the receipt says of it, or what stands in for one."""
    if command == "verify":
        file = folder / "verify.json"
        verdict = json.loads(file.read_text()) if file.exists() else {"problem": "none was reached"}
        again = "run again after" in (verdict.get("problem") or "")
        return RETRIED if again else ENDED if verdict.get("problem") and not verdict.get("prompts") else UNNOTICED
    if done.returncode != 0:
        return ENDED
    if command == "run":
        again = json.loads((folder / "receipt.json").read_text())["recoveries"]
    elif command == "bench":
        again = any(row["recoveries"] for row in json.loads(done.stdout))
    else:
        again = re.search(rb"retried on|run again", done.stdout + done.stderr)
    return RETRIED if again else UNNOTICED


def result_of(command, done, folder):
    if command == "eval":
        file = folder / "logits.f32"
        return file.read_bytes() if file.exists() else b""
    return done.stdout if command in ("run", "chat") else b""


def judge(bench, cell):
    """What came of it, and what is wrong with that, if anything."""
    outcome = bench.run(cell.command, cell.form, cell.fault)
    codes = (CODES_OF_VERIFY if cell.command == "verify" else CODES)[cell.expected]
    problem = ""
    if outcome.what != cell.expected or outcome.code not in codes:
        problem = f"should have been {cell.expected}, exit code {' or '.join(map(str, sorted(codes)))}"
    elif outcome.code == 0 and cell.kind != "flip" and outcome.result != bench.undisturbed(cell.command, cell.form):
        problem = "the result is not the one without the fault"
    return f"{outcome.what}, {outcome.code}", problem


def table(cells, found, plugin):
    """One per form, a row for each fault."""
    lines = []
    for form in dict.fromkeys(cell.form for cell in cells):
        columns = [*COMMANDS, "plug-in"] if form[1] == "int8" else COMMANDS
        lines += [f"### --fusion {form[0]} --weights {form[1]}", "", "| fault | " + " | ".join(columns) + " |",
                  "|---" * (len(columns) + 1) + "|"]
        for fault in dict.fromkeys(cell.fault for cell in cells if cell.form == form):
            row = [said_of(found.get((fault, form, command))) for command in COMMANDS]
            row += [said_of(plugin.get(fault))] if form[1] == "int8" else []
            lines.append(f"| {fault} | " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def said_of(judged):
    if judged is None:
        return ""
    what, problem = judged
    return f"**{what}**: {problem}" if problem else what


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tyto", type=Path)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth cell")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables there")
    arguments = parser.parse_args()
    bench = Bench(arguments.tyto, arguments.fixtures / "llama3" / "model")
    cells = [Cell(fault, form, command) for form in faults.FORMS for fault in FAULTS for command in COMMANDS]
    cells = cells[::arguments.every]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        judged = list(pool.map(lambda cell: judge(bench, cell), cells))
    found = {(cell.fault, cell.form, cell.command): result for cell, result in zip(cells, judged)}
    plugin = plugin_faults.judge_all(arguments.tyto, FAULTS) if arguments.every == 1 else {}
    wrong = [(cell, *result) for cell, result in zip(cells, judged) if result[1]]
    wrong += [(fault, *result) for fault, result in plugin.items() if result[1]]
    for cell, what, problem in wrong:
        print(f"UNEXPECTED {cell}: {what}: {problem}")
    print(f"{len(cells)} cells, {len(wrong)} not as expected")
    if arguments.write:
        head = "`fault_matrix.py TYTO FIXTURES`: what came of each fault, and the exit code; policy `retry`.\n\n"
        arguments.write.write_text(head + table(cells, found, plugin))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
