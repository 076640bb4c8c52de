#!/usr/bin/env python3
"""Attacks the program: hostile files, failing devices, forged evidence, full disks, signals, absurd flags.

    attack.py PATH_TO_TYTO FIXTURES_FOLDER [--size small|full] [--seed N] [--only FAMILY] [--jobs N]

docs/attack.md says what is attacked and what is demanded. Exit code 1 when a law was broken; each case that broke one
is printed with the command that repeats it.
"""
import argparse
import collections
import json
import multiprocessing
import shlex
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import evidence
import faults
import loss
import models
import profiles
import usage
from stock import Stock
from trial import Trial, digest, limits_of, ordinary_process

FAMILIES = {"models": models, "faults": faults, "profiles": profiles, "evidence": evidence, "loss": loss,
            "usage": usage}
SHOWN_PER_LAW = 3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tyto", type=Path)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--size", choices=["small", "full"], default="small")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--only", metavar="FAMILY[/KIND]", help="one family, or one kind of its cases")
    parser.add_argument("--case", metavar="FAMILY/KIND/NUMBER", help="one case, as a violation names it")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--write", type=Path, metavar="DIR", help="put the table there, as Markdown and JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR",
                        help="leave the files of cases that broke a law there, to run the program on again")
    return parser.parse_args()


def choose_cases(arguments):
    if arguments.case:
        return [arguments.case]
    names = []
    for family, module in FAMILIES.items():
        for kind, (small, full, _) in module.KINDS.items():
            if arguments.only in (None, family, f"{family}/{kind}"):
                # A small attack is the beginning of the full one.
                names += [f"{family}/{kind}/{i}" for i in range(full if arguments.size == "full" else small)]
    return names


def attack(context, name):
    """One case, from its name to what came of it."""
    arguments, stock, limits = context
    folder = Path(tempfile.mkdtemp(dir=stock.folder, prefix="case-"))
    family, kind, number = name.split("/")
    trial = Trial(str(arguments.tyto.resolve()), stock, limits, name, arguments.seed, folder)
    try:
        FAMILIES[family].KINDS[kind][2](trial, int(number))
    except Exception:
        return name, {"the attack itself failed": 1}, [("the attack itself failed", "", traceback.format_exc(limit=-2))]
    if arguments.keep and (trial.violations or arguments.case):
        shutil.copytree(folder, arguments.keep / name.replace("/", "-"), symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return (name, dict(collections.Counter(run.outcome for run in trial.runs)),
            [(v.law, v.command, v.said) for v in trial.violations])


CONTEXT = None  # a worker process's


def remember(context):
    global CONTEXT
    CONTEXT = context


def attack_remembered(name):
    return attack(CONTEXT, name)


def work(names, context, jobs):
    if jobs == 1 or len(names) == 1:
        yield from (attack(context, name) for name in names)
        return
    with multiprocessing.get_context("fork").Pool(jobs, remember, (context,)) as pool:
        yield from pool.imap_unordered(attack_remembered, names, chunksize=4)


def table(cases, outcomes):
    """Rows of text: family, cases, runs, and runs per outcome."""
    columns = sorted({outcome for counts in outcomes.values() for outcome in counts}, key=lambda o: (o.isupper(), o))
    rows = [["family", "cases", "runs", *columns]]
    for family in cases:
        counts = outcomes[family]
        rows.append([family, cases[family], sum(counts.values()), *(counts[column] for column in columns)])
    if len(rows) > 2:
        rows.append(["all", *(sum(row[i] for row in rows[1:]) for i in range(1, len(rows[0])))])
    return rows


def markdown(rows):
    lines = [" | ".join(map(str, row)) for row in rows]
    lines.insert(1, " | ".join(["---"] + ["---:"] * (len(rows[0]) - 1)))
    return "".join(f"| {line} |\n" for line in lines)


def violation_text(arguments, broken):
    """Grouped by family, kind and law: how many, and the first few with what repeats them."""
    text = ""
    repeat = shlex.join([sys.argv[0], str(arguments.tyto), str(arguments.fixtures), "--seed", str(arguments.seed)])
    for (group, law), cases in sorted(broken.items()):
        text += f"\nVIOLATION {group}: {law} ({len(cases)} runs)\n"
        for name, command, said in sorted(cases)[:SHOWN_PER_LAW]:
            text += f"  {command}\n    {said}\n    repeat: {repeat} --case {name} --keep kept\n"
    return text


def write_results(arguments, rows, broken, seconds, runs):
    arguments.write.mkdir(parents=True, exist_ok=True)
    facts = {"size": arguments.size, "seed": arguments.seed, "only": arguments.only, "seconds": round(seconds),
             "violations": sum(map(len, broken.values()))}
    (arguments.write / "attack.md").write_text(
        f"`attack.py --size {arguments.size} --seed {arguments.seed}`: {runs} runs in {seconds:.0f} s.\n\n"
        + markdown(rows) + violation_text(arguments, broken))
    (arguments.write / "attack.json").write_text(json.dumps(
        {**facts, "table": [dict(zip(rows[0], row)) for row in rows[1:]],
         "broken": [{"group": group, "law": law, "runs": len(cases), "case": min(cases)[0]}
                    for (group, law), cases in sorted(broken.items())]}, indent=1) + "\n")


def main():
    arguments = parse_arguments()
    limits = limits_of(arguments.tyto)
    ordinary_process(limits)
    names = choose_cases(arguments)
    began = time.monotonic()
    cases, outcomes, broken = collections.Counter(), collections.defaultdict(collections.Counter), \
        collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="tyto-attack-") as folder:
        stock = Stock(arguments.tyto.resolve(), arguments.fixtures.resolve(), Path(folder))
        for module in {FAMILIES[name.split("/")[0]] for name in names}:
            module.prepare(stock)
        whole = digest(stock.whole)
        context = (arguments, stock, limits)
        for name, counts, violations in work(names, context, arguments.jobs):
            family, kind, _ = name.split("/")
            cases[family] += 1
            outcomes[family].update(counts)
            for law, command, said in violations:
                broken[f"{family}/{kind}", law].append((name, command, said))
        if digest(stock.whole) != whole:
            broken["all", "changed a file that every case reads"].append(("", "", ""))
        if arguments.keep and arguments.keep.exists():
            shutil.copytree(stock.whole, arguments.keep / "whole", dirs_exist_ok=True)
    rows = table({family: cases[family] for family in FAMILIES if cases[family]}, outcomes)
    seconds = time.monotonic() - began
    runs = sum(sum(counts.values()) for counts in outcomes.values())
    print(markdown(rows) + violation_text(arguments, broken) + f"\n{runs} runs in {seconds:.0f} s, "
          f"{sum(map(len, broken.values()))} violations")
    if arguments.write:
        write_results(arguments, rows, broken, seconds, runs)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
