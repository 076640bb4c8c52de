"""Forged evidence: the ledger of results, receipts, and what a model was verified as."""
import json
import shutil
import struct

import hostile
from stock import copy

BENCH = ["bench", "-p", "4", "-n", "2", "-r", "1", "--no-warmup"]
LEDGER = "state/tyto/results.jsonl"


def prepare(stock):
    """A ledger of six rows, two of them of the virtual NPU, and two receipts."""
    for device in (["cpu"], ["vnpu", "--prompt-rows", "64"], ["cpu"]):
        stock.run(*BENCH, "-m", stock.checkpoints["llama2"], "--device", *device, state="ledger-state")
    stock.state = stock.whole / "state"
    shutil.copytree(stock.folder / "ledger-state", stock.state)
    stock.receipts = {}
    for device in (["cpu"], ["vnpu", "--prompt-rows", "64"]):
        path = stock.receipts[device[0]] = stock.whole / f"receipt-{device[0]}.json"
        stock.run("run", "-m", stock.checkpoints["llama2"], "-p", "hello", "--raw", "-n", "3", "--temp", "0",
                  "--device", *device, "--receipt", path)


# A ledger's lines are bytes: a forger does not write them as the program does.

def changed_number(lines, random):
    row = json.loads(lines[(at := random.randrange(len(lines)))])
    paths = [p for p in hostile.places(row) if p and type(hostile.at(row, p)) in (int, float) and hostile.at(row, p)]
    path = random.choice(paths)
    hostile.at(row, path[:-1])[path[-1]] *= random.choice([2, 10, 1000])
    lines[at] = json.dumps(row, separators=(",", ":"))


def faster(lines, random):
    """The speed alone, as a boaster would."""
    at = random.randrange(len(lines))
    row = json.loads(lines[at])
    for name in ("avg_ts", "modelled_avg_ts", "speed_pp", "modelled_speed_pp", "speed_tg", "modelled_speed_tg"):
        if row["row"].get(name):
            row["row"][name] *= 3
    lines[at] = json.dumps(row, separators=(",", ":"))


def invented_device(lines, random):
    at = random.randrange(len(lines))
    lines[at] = lines[at].replace('"executed_on":"cpu"', '"executed_on":"npu"').replace(
        '"executed_on":"vnpu (modelled)+cpu"', '"executed_on":"npu"').replace('"name":"vnpu"', '"name":"npu"')


def not_modelled(lines, random):
    lines[:] = [line.replace('"modelled":true', '"modelled":false').replace('"virtual":true', '"virtual":false')
                for line in lines]


def removed(lines, random):
    del lines[random.randrange(len(lines) - 1)]


def removed_last(lines, random):
    del lines[-random.randrange(1, 3):]


def inserted(lines, random):
    lines.insert(random.randrange(len(lines)), random.choice(lines))


def inserted_with_other_id(lines, random):
    row = json.loads(random.choice(lines))
    new = f"{random.randrange(16**16):016x}"
    lines.insert(random.randrange(len(lines)), json.dumps(row).replace(row["id"], new))


def reordered(lines, random):
    at = random.randrange(len(lines) - 1)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]


def cut_line(lines, random):
    at = random.randrange(len(lines))
    lines[at] = lines[at][:random.randrange(1, len(lines[at]))]


def foreign_line(lines, random):
    lines.insert(random.randrange(len(lines)), random.choice(
        ["not JSON", "{}", "[]", "null", "\x1b[2J", "{" * 3000, '{"schema":"tyto-result-1"}', "1e999", '{"a":NaN}']))


def escapes(lines, random):
    at = random.randrange(len(lines))
    lines[at] = lines[at].replace('"model_filename":"', '"model_filename":' + json.dumps(hostile.ESCAPES)[:-1], 1)


def hostile_value(lines, random):
    at = random.randrange(len(lines))
    row = json.loads(lines[at])
    path = random.choice([p for p in hostile.places(row) if p])
    lines[at] = hostile.with_value(row, path, random.choice(hostile.VALUES + hostile.NOT_JSON))


def raw_flip(lines, random):
    at = random.randrange(len(lines))
    lines[at] = hostile.flipped(lines[at].encode(), random, 1).decode(errors="surrogateescape").replace("\n", " ")


def superseded_by_hand(lines, random):
    row = json.loads(random.choice(lines))
    lines.append(json.dumps({"schema": "tyto-result-1", "kind": "supersede", "id": row["id"], "why": "slow",
                             "date": "2030-01-01T00:00:00Z"}))


FORGERIES = [changed_number, faster, invented_device, not_modelled, removed, removed_last, inserted,
             inserted_with_other_id, reordered, cut_line, foreign_line, escapes, hostile_value, raw_flip,
             superseded_by_hand]


def values_of(lines):
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return None


def ledger(trial, number):
    """A reader of a forged ledger is told so, and which row it is."""
    shutil.copytree(trial.stock.state, trial.folder / "state")
    path = trial.folder / LEDGER
    before = path.read_bytes()
    lines = before.decode().splitlines()
    ids = [json.loads(line).get("id", "") for line in lines]
    forge = FORGERIES[number % len(FORGERIES)]
    forge(lines, trial.random)
    after = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
    if after == before or values_of(lines) == values_of(before.decode().splitlines()):
        return  # written in another way, and nothing else
    path.write_bytes(after)
    what = f"a ledger with {forge.__name__.replace('_', ' ')}"
    for run in (trial.run("results", "check"), trial.run("results", "list", "--all")):
        trial.settle(run, "found the forgery")
        trial.demand(run, run.code == 1 and (run.out + run.err).strip() != b"", f"did not notice {what}")
    trial.run("results", "show", trial.random.choice(ids))
    run = trial.run(*BENCH, "-m", trial.stock.checkpoints["llama2"])
    trial.demand(run, path.read_bytes().startswith(after.rstrip(b"\n")), "rewrote the ledger instead of adding to it")


def whole_ledger(trial, number):
    """An untouched one is good, also after further rows by several at a time."""
    shutil.copytree(trial.stock.state, trial.folder / "state")
    began = [trial.start(*BENCH, "-m", trial.stock.checkpoints["llama2"]) for _ in range(3)]
    codes = [process.wait(trial.limits.seconds) for process in began]
    run = trial.run("results", "check")
    trial.demand(run, codes == [0, 0, 0], "could not add to a good ledger")
    trial.demand(run, run.code == 0, "found fault with a good ledger")
    listed = trial.run("results", "list")
    trial.demand(listed, listed.code == 0 and len(listed.out.splitlines()) >= 12, "does not list a good ledger")


def receipt_changed(receipt, random):
    paths = [p for p in hostile.places(receipt) if p and not isinstance(hostile.at(receipt, p), (dict, list))]
    path = random.choice(paths)
    old = hostile.at(receipt, path)
    new = {bool: lambda: not old, int: lambda: old * 2 + 1, float: lambda: old * 3 + 1, str: lambda: old + "x",
           type(None): lambda: 1}[type(old)]()
    hostile.at(receipt, path[:-1])[path[-1]] = new
    return json.dumps(receipt, indent=2)


def receipt_of_another_device(receipt, random):
    return json.dumps(receipt, indent=2).replace('"vnpu"', '"npu"').replace('"cpu"', '"npu"')


def receipt_without(receipt, random):
    return hostile.without(receipt, random.choice([p for p in hostile.places(receipt) if p]))


def receipt_hostile(receipt, random):
    path = random.choice([p for p in hostile.places(receipt) if p])
    return hostile.with_value(receipt, path, random.choice(hostile.VALUES + hostile.NOT_JSON))


def receipt_cut(receipt, random):
    text = json.dumps(receipt, indent=2)
    return text[:random.randrange(len(text) - 2)]


RECEIPT_FORGERIES = [receipt_changed, receipt_of_another_device, receipt_without, receipt_hostile, receipt_cut]


def receipt(trial, number):
    path = copy(trial.stock.receipts[("vnpu", "cpu")[number % 2]], trial.folder, "receipt.json")
    document = json.loads(path.read_text())
    forge = RECEIPT_FORGERIES[number % len(RECEIPT_FORGERIES)]
    text = forge(document, trial.random)
    try:
        if json.loads(text) == json.loads(path.read_text()):
            return
    except ValueError:
        pass
    path.write_text(text, errors="surrogateescape")
    run = trial.run("receipt", "check", path.name)
    trial.settle(run, "found the forgery")
    trial.demand(run, run.code == 1 and (run.out + run.err).strip() != b"",
                 f"did not notice a {forge.__name__.replace('_', ' ')}")


def whole_receipt(trial, number):
    path = copy(trial.stock.receipts[("vnpu", "cpu")[number % 2]], trial.folder, "receipt.json")
    run = trial.run("receipt", "check", path.name)
    trial.demand(run, run.code == 0, "found fault with a good receipt")


def another_model(trial, number):
    """`verified` is of these weights and this config, and of no others."""
    model = copy(trial.stock.checkpoints["llama3"], trial.folder, "model")
    verified = trial.run("verify", "-m", model.name)
    asked = ["run", "-m", model.name, "-p", "hello", "--raw", "-n", "2", "--temp", "0", "-v"]
    same = trial.run(*asked)
    trial.demand(same, verified.code == 0 and b"never verified" not in same.err, "forgot a verification that holds")
    if number % 3 == 0:
        weights = bytearray((model / "model.safetensors").read_bytes())
        for i in range(len(weights) - 601, len(weights), 2):
            weights[i] ^= 0x80
        (model / "model.safetensors").write_bytes(weights)
    elif number % 3 == 1:
        weights = bytearray((model / "model.safetensors").read_bytes())
        first = 8 + struct.unpack_from("<Q", weights)[0]
        at = trial.random.randrange(first + (1 << 20), len(weights) - 2) | 1
        weights[at] ^= 0x80
        (model / "model.safetensors").write_bytes(weights)
    else:
        config = json.loads((model / "config.json").read_text())
        places = [p for p in hostile.places(config) if p and p[-1] == "rope_theta"]
        for path in places:
            hostile.at(config, path[:-1])["rope_theta"] *= 50
        (model / "config.json").write_text(json.dumps(config))
    other = trial.run(*asked)
    trial.demand(other, other.code != 0 or b"never verified" in other.err, "calls another model verified")


KINDS = {
    "ledger": (len(FORGERIES), 300, ledger),
    "whole-ledger": (1, 10, whole_ledger),
    "receipt": (10, 250, receipt),
    "whole-receipt": (2, 2, whole_receipt),
    "another-model": (3, 30, another_model),
}
