"""A virtual NPU that fails: every kind of fault, at several places, in every command, with every policy.

What must come of a fault is data (EXPECTED, below). A fault that is recovered from changes nothing that was asked for,
and is told; one that is not is exit code 1 and one line.
"""
import itertools
import math
import os
import random
import re
import shutil

from stock import copy
from trial import strict_json

# Positions count dispatches, for oom allocations. The commands below make at least five of them in every form; the
# later positions are reached by some.
SURE, LATE = (1, 5), (9, 25)
DISPATCH_FAULTS = [f"{kind}@{n}" for kind in ("timeout", "error", "hang", "context-lost", "corrupt")
                   for n in SURE + LATE]
FAULTS = [*DISPATCH_FAULTS, "oom@1", "slowx4", "slowx1e9", "error@100000"]
FORMS = [("op", "bf16"), ("block", "bf16"), ("token", "bf16"), ("op", "int8"), ("token", "q4nx")]
POLICIES = ["retry", "cpu", "fail"]

GREEDY = ["--temp", "0", "--seed", "1"]
COMMANDS = {
    "run": ["run", "-p", "hello", "--raw", "-n", "5", *GREEDY, "-v", "--receipt", "receipt.json"],
    "chat": ["chat", "--chat-template", "chatml", "-n", "5", "-v", *GREEDY],
    "bench": ["bench", "-p", "8", "-n", "4", "-r", "1", "--no-warmup", "-o", "json"],
    "eval": ["eval", "--prompt", "hello", "--logits", "logits.f32"],
    "perplexity": ["perplexity", "-f", "text.txt", "--window", "32", "--stride", "16"],
    "verify": ["verify", "-n", "4", "--json", "verify.json"],
    "profile": ["profile", "-p", "hello", "--raw", "-n", "5", *GREEDY, "--json", "profile.json"],
}
WORDS = {"chat": "hello\n"}  # typed by the user

# (what the fault is, policy): what must come of it.
UNHARMED, RECOVERED, MOVED, FAILED = "ran correctly", "recovered", "finished on the cpu", "failed cleanly"
EXPECTED = {
    ("dispatch", "retry"): RECOVERED, ("dispatch", "cpu"): MOVED, ("dispatch", "fail"): FAILED,
    # Too slow once is too slow again.
    ("too slow", "retry"): FAILED, ("too slow", "cpu"): MOVED, ("too slow", "fail"): FAILED,
    # Weights that do not fit are no failed dispatch.
    ("memory", "retry"): FAILED, ("memory", "cpu"): FAILED, ("memory", "fail"): FAILED,
    ("none", "retry"): UNHARMED, ("none", "cpu"): UNHARMED, ("none", "fail"): UNHARMED,
}


def nature(fault):
    if fault.startswith("oom"):
        return "memory"
    if fault == "slowx1e9":
        return "too slow"
    return "none" if fault in ("slowx4", "error@100000") else "dispatch"


def may_never_happen(fault):
    return "@" in fault and int(fault.split("@")[1]) not in SURE


def prepare(stock):
    answers = {form: plain(stock, "run", form)["out"] for form in (*FORMS, None)}
    assert len(set(answers.values())) == 1, f"the forms answer differently, which the attack relies on: {answers}"


def device_flags(form):
    if not form:
        return []
    return ["--device", "vnpu", "--vnpu-hostile", "on", "--prompt-rows", "64", "--fusion", form[0], "--weights", form[1]]


PLAIN = {}  # made when first asked for, in each worker


def plain(stock, name, form):
    """What a command says and writes without a fault; without a form, on the cpu."""
    if (name, form) not in PLAIN:
        folder = stock.folder / f"plain-{os.getpid()}"
        folder.mkdir(exist_ok=True)
        flags = [str(stock.text) if a == "text.txt" else str(folder / a) if "." in a else a for a in COMMANDS[name]]
        result = stock.run(*flags, "-m", stock.checkpoints["llama3"], *device_flags(form), text=WORDS.get(name, ""))
        PLAIN[name, form] = {"out": result.stdout,
                             "logits": (folder / "logits.f32").read_bytes() if name == "eval" else b""}
        shutil.rmtree(folder)
    return PLAIN[name, form]


def combinations(name):
    """In an order in which a few next to each other are of many kinds."""
    every = list(itertools.product(FAULTS, FORMS, POLICIES))
    random.Random(name).shuffle(every)
    return every


def case(name):
    def attack(trial, number):
        fault, form, policy = combinations(name)[number]
        copy(trial.stock.text, trial.folder)
        run = trial.run(*COMMANDS[name], "-m", trial.stock.checkpoints["llama3"], *device_flags(form),
                        "--vnpu-fault", fault, "--on-device-error", policy, text=WORDS.get(name, ""))
        if run.code in (0, 1):
            judge(trial, run, name, fault, form, policy)
    return attack


def judge(trial, run, name, fault, form, policy):
    expected = EXPECTED[nature(fault), policy]
    silent = run.code == 0 and not told(run, trial)
    if may_never_happen(fault) and silent and same_result(trial, run, name, form, moved=False):
        expected = UNHARMED
    if name == "verify" and expected != UNHARMED:
        expected = FAILED  # a device that failed on the way has not passed
    if name == "bench" and expected == MOVED:
        moved_rows(trial, run)
        return
    wanted = 1 if expected == FAILED else 0
    if not trial.demand(run, run.code == wanted, f"a fault that should have {expected}: exit code {run.code}"):
        return
    trial.settle(run, expected)
    if expected == FAILED:
        failed(trial, run, name, plain(trial.stock, name, form)["out"])
        return
    trial.demand(run, same_result(trial, run, name, form, expected == MOVED),
                 f"the result of {name} is another after the fault")
    if expected == UNHARMED:
        trial.demand(run, not told(run, trial), "told of a recovery that was none")
        return
    trial.demand(run, told(run, trial), f"{name} did not tell that a dispatch had failed")
    if name == "bench" and expected == RECOVERED:
        trial.demand(run, sum("retried" in str(row) for row in strict_json(run.out)) == 1,
                     "more rows than one tell of one failed dispatch")
    if expected == MOVED and fault.endswith("@1") and not fault.startswith("corrupt") or fault == "slowx1e9":
        trial.demand(run, not claims_vnpu(trial, run), "named vnpu as executing, which completed nothing")


def moved_rows(trial, run):
    """A row is the cpu's alone, or shows no speed: what two devices did in turn is neither's."""
    refused = 0
    for row in strict_json(run.out):
        of_cpu = row["executed_on"] == "cpu"
        mixed = row["recoveries"] > 0 and not of_cpu
        refused += mixed
        speeds = [row["avg_ts"], row["modelled_avg_ts"]]
        trial.demand(run, not mixed or speeds == [None, None], "a speed of two devices in turn is shown")
        trial.demand(run, not of_cpu or row["backends"] == "CPU", "a row of the cpu names another backend")
    if trial.demand(run, run.code == (1 if refused else 0), f"{refused} mixed rows: exit code {run.code}"):
        trial.settle(run, MOVED)


def failed(trial, run, name, answer):
    if name in ("run", "chat"):
        said = run.out.rstrip(b"\n")
        trial.demand(run, answer.startswith(said), "what it said before it failed is not the answer's beginning")
    if name == "verify":
        trial.demand(run, b"PASS:" not in run.out, "failed and says PASS")
    if name == "bench" and run.out.strip():
        trial.demand(run, run.out.strip().endswith(b"]"), "left half a JSON array")
    for file in ("logits.f32", "receipt.json", "profile.json"):
        trial.demand(run, not (trial.folder / file).exists(), f"failed and left {file}")


def told(run, trial):
    """Somewhere in what a user reads or keeps it says that the device failed."""
    kept = [path.read_text(errors="replace") for path in trial.folder.glob("*.json")]
    texts = [run.err.decode(errors="replace"), run.out.decode(errors="replace"), *kept]
    words = any(re.search(r"retried on|finished on the cpu|dispatch failed|run again|timed out", text)
                for text in texts)
    counts = re.findall(r"(\d+) of (\d+) submissions completed", texts[0])
    return words or any(int(done) < int(begun) for done, begun in counts)


def same_result(trial, run, name, form, moved):
    before = plain(trial.stock, name, form)
    if name == "bench":
        return all(row["executed_on"] for row in strict_json(run.out))
    if name == "profile":
        answer = plain(trial.stock, "run", form)["out"].strip()
        return trial.read_json(run, trial.folder / "profile.json") is not None and answer in run.out
    on_cpu = plain(trial.stock, name, None) if moved else before
    if name == "eval":
        return same_rows((trial.folder / "logits.f32").read_bytes(), before["logits"], on_cpu["logits"])
    if name == "perplexity" and moved:
        return between(nll(run.out), nll(before["out"]), nll(on_cpu["out"]))
    return run.out in (before["out"], on_cpu["out"]) and (name != "run" or counted(trial, run))


def same_rows(found, before, on_cpu):
    """Every position's logits are bytes that one of the two computes without a fault."""
    size = len(before) // 5  # positions of the prompt
    rows = [[data[i:i + size] for i in range(0, len(data), size)] for data in (found, before, on_cpu)]
    return len(found) == len(before) and all(row in allowed for row, *allowed in zip(*rows))


def counted(trial, run):
    """A receipt has as many completions as submissions, less those that failed."""
    receipt = trial.read_json(run, trial.folder / "receipt.json")
    if receipt is None:
        return False
    lost = sum(d["submissions"] - d["completions"] for d in receipt["devices"])
    silent = any(w in " ".join(run.arguments) for w in ("corrupt", "slowx4"))  # the device says that all went well
    return lost >= (1 if told(run, trial) and not silent else 0)


def nll(out):
    found = re.search(rb"nll ([0-9.]+)", out)
    return float(found.group(1)) if found else math.nan


def between(value, a, b):
    return min(a, b) - 0.1 <= value <= max(a, b) + 0.1


def claims_vnpu(trial, run):
    named = re.search(r"executed on ([^;·\n]*)", run.err.decode(errors="replace") + run.out.decode(errors="replace"))
    return named is not None and "vnpu" in named.group(1)


def every_turn_fails(trial, number):
    """A chat whose turns all fail has failed, also where the first failure is why the later ones do."""
    fault, form = list(itertools.product(DISPATCH_FAULTS, FORMS))[number]
    run = trial.run(*COMMANDS["chat"], "-m", trial.stock.checkpoints["llama3"], *device_flags(form),
                    "--vnpu-fault", fault, "--on-device-error", "fail", text="hello\nhello\n")
    trial.demand(run, run.code != 0 or b"executed on" in run.err, "chat ended well though no turn was answered")


KINDS = {
    **{name: (6, len(combinations(name)), case(name)) for name in COMMANDS},
    "every-turn-fails": (3, len(DISPATCH_FAULTS) * len(FORMS), every_turn_fails),
}
