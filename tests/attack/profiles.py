"""Mutated files of `tyto profile --json`, given to `profile --from` and `profile --diff`."""
import copy
import json

import hostile
from trial import digest

ASKED = ["-p", "hello", "--raw", "--temp", "0"]
BASES = {
    "vnpu": [*ASKED, "-n", "4", "--device", "vnpu", "--prompt-rows", "64"],
    "cpu": [*ASKED, "-n", "3", "-r", "2"],
    "sweep": ["--sweep", "4,8", "-n", "2"],
}
REPORTS = [[], ["--html", "page.html"], ["--json", "again.json"], ["--perfetto", "trace.json"]]
COUNTERS = ["submissions", "completions", "launches", "bytes", "flops"]


def prepare(stock):
    stock.profiles, stock.shown = {}, {}
    for name, flags in BASES.items():
        path = stock.whole / f"{name}.json"
        stock.run("profile", "-m", stock.checkpoints["llama2"], *flags, "--json", path)
        stock.profiles[name] = json.loads(path.read_text())
        stock.shown[name] = stock.run("profile", "--from", path).stdout


def base(trial, number):
    name = list(BASES)[number % len(BASES)]
    return name, copy.deepcopy(trial.stock.profiles[name])


def of_one_request(trial, number):
    """Not of a sweep, which keeps no events."""
    return base(trial, number % 2)


def show(trial, number, content, report=None):
    """Both readers meet the file; what they write beside the text must be whole."""
    path = trial.folder / "profile.json"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode(errors="surrogateescape") if isinstance(content, str) else content)
    before = digest(path)
    report = REPORTS[number % len(REPORTS)] if report is None else report
    shown = trial.run("profile", "--from", path.name, *report)
    pair = [path.name, trial.stock.whole / "vnpu.json"]
    compared = trial.run("profile", "--diff", *(pair if number % 2 else pair[::-1]))
    trial.demand(compared, digest(path) == before, "changed its input")
    if report:
        target = trial.folder / report[1]
        if shown.code == 0 and target.suffix == ".json":
            trial.read_json(shown, target)
        trial.demand(shown, shown.code == 0 or not target.exists(), "failed and left a report")
        if shown.code == 0 and target.suffix == ".html":
            trial.demand(shown, b"\x1b" not in target.read_bytes(), "wrote control characters into the page")
    return shown, compared


def values(trial, number):
    """One value is hostile, or gone."""
    _, profile = base(trial, number)
    show(trial, number, hostile.damaged_json(profile, trial.random))


def header_values(trial, number):
    """The same outside the events, which are most of a file."""
    _, profile = base(trial, number)
    paths = [p for p in hostile.places(profile) if p and "events" not in p]
    show(trial, number, hostile.with_value(profile, trial.random.choice(paths),
                                           trial.random.choice(hostile.VALUES + hostile.NOT_JSON[:4])))


def raw_bytes(trial, number):
    _, profile = base(trial, number)
    content = json.dumps(profile).encode()
    show(trial, number, hostile.flipped(content, trial.random, trial.random.choice([1, 3, 20])) if number % 2
         else hostile.spliced(content, trial.random))


def truncated(trial, number):
    _, profile = base(trial, number)
    content = json.dumps(profile)
    for run in show(trial, number, content[:trial.random.randrange(len(content))]):
        trial.must_refuse(run, "half a profile")


def counters(trial, number):
    """A receipt that says more or less than the events do."""
    _, profile = of_one_request(trial, number)
    device = trial.random.choice(trial.random.choice(profile["runs"])["receipt"]["devices"])
    name = COUNTERS[number % len(COUNTERS)]
    device[name] = trial.random.choice([device[name] * 2 + 1, device[name] // 2, device[name] + 1, 0, 2**53])
    for run in show(trial, number, profile):
        trial.must_refuse(run, "a profile whose counters and events disagree")


def events(trial, number):
    """Dispatches removed, repeated or with other work, under counters that stay."""
    _, profile = of_one_request(trial, number)
    columns, kinds = profile["event_columns"], profile["event_kinds"]
    rows = trial.random.choice(profile["runs"])["events"]
    row = trial.random.choice([r for r in rows if kinds[r[columns.index("kind")]] == "submit"])
    way = number % 3
    if way == 0:
        rows.remove(row)
    elif way == 1:
        rows.insert(rows.index(row), list(row))
    else:
        row[columns.index("bytes")] = row[columns.index("bytes")] * 1000 + 1000
    for run in show(trial, number, profile):
        trial.must_refuse(run, "a profile whose counters and events disagree")


def report(trial, number):
    """Numbers that follow from the events are not taken from the file."""
    name, profile = of_one_request(trial, number)
    paths = [p for p in hostile.places(profile["report"]) if p and isinstance(hostile.at(profile["report"], p), float)]
    for path in trial.random.sample(paths, 5):
        hostile.at(profile["report"], path[:-1])[path[-1]] *= 1000
    shown, _ = show(trial, number, profile, report=[])
    trial.demand(shown, shown.code != 0 or shown.out == trial.stock.shown[name], "shows numbers that the file made up")


def verdict(trial, number):
    """The stored verdict is made up."""
    _, profile = of_one_request(trial, number)
    judged = trial.random.choice(profile["runs"])["receipt"]["plausibility"]
    judged["verdict"] = trial.random.choice(["plausible", "implausible", "unchecked", "proven", hostile.ESCAPES])
    judged["checks"] = ["vnpu prefill: 1e9 GB/s of at most 1e12"]
    shown, _ = show(trial, number, profile, report=[])
    trial.demand(shown, shown.code != 0 or b"1e9 GB/s" not in shown.out, "shows a verdict that the file made up")


def too_fast(trial, number):
    """Everything agrees, and no such device exists."""
    profile = base(trial, 0)[1]
    factor = trial.random.choice([10**4, 10**6])
    columns = profile["event_columns"]
    for run in profile["runs"]:
        for row in run["events"]:
            for name in ("bytes", "flops"):
                row[columns.index(name)] *= factor
        receipt = run["receipt"]
        for device in (*receipt["devices"], *receipt["phases"]["prefill"], *receipt["phases"]["decode"]):
            for name in ("bytes", "flops"):
                device[name] *= factor
    shown, _ = show(trial, number, profile, report=[])
    said = [line.split() for line in shown.out.decode(errors="replace").splitlines() if line.startswith("plausibility")]
    trial.demand(shown, shown.code != 0 or ["plausibility", "plausible"] not in said,
                 "calls plausible what no device can do")


KINDS = {
    "values": (8, 500, values),
    "header-values": (8, 400, header_values),
    "raw-bytes": (4, 160, raw_bytes),
    "truncated": (2, 80, truncated),
    "counters": (5, 100, counters),
    "events": (3, 80, events),
    "report": (2, 60, report),
    "verdict": (2, 60, verdict),
    "too-fast": (1, 20, too_fast),
}
