"""Attempts to lose something: outputs onto inputs and strangers, full disks, signals, models that shrink in use."""
import os
import signal
import stat
import time

from stock import copy
from trial import digest

OUT = "OUTPUT"  # stands for the path in the commands below
GREEDY = ["--temp", "0", "--seed", "1"]
ASK = ["-f", "prompt.txt", "--chat-template", "template.jinja", "-n", "2", *GREEDY]
REPORT = ["profile", "--from", "profile.json"]
# Every flag that names a file to write, with the inputs that its command reads beside the model.
OUTPUTS = {
    "run --receipt": (["run", "MODEL", *ASK, "--receipt", OUT], ["prompt.txt", "template.jinja"]),
    "eval --logits": (["eval", "MODEL", "--ids", "5,6,7", "--logits", OUT], []),
    "verify --json": (["verify", "MODEL", "-n", "2", "--json", OUT], []),
    "verify --write": (["verify", "MODEL", "-n", "2", "--write", OUT], []),
    "verify --against": (["verify", "MODEL", "-n", "2", "--against", "transcript.json", "--json", OUT],
                         ["transcript.json"]),
    "diagnose --json": (["diagnose", "MODEL", *ASK[:4], "-n", "1", "--json", OUT], ["prompt.txt", "template.jinja"]),
    "diagnose --html": (["diagnose", "MODEL", *ASK[:4], "-n", "1", "--html", OUT], ["prompt.txt"]),
    "profile --json": (["profile", "MODEL", *ASK, "--json", OUT], ["prompt.txt", "template.jinja"]),
    "profile --html": (["profile", "MODEL", *ASK, "--html", OUT], ["prompt.txt"]),
    "profile --perfetto": (["profile", "MODEL", *ASK, "--perfetto", OUT], ["prompt.txt"]),
    "profile --receipt": (["profile", "MODEL", *ASK, "--receipt", OUT], ["prompt.txt"]),
    "profile --from --json": ([*REPORT, "--json", OUT], ["profile.json"]),
    "profile --from --html": ([*REPORT, "--html", OUT], ["profile.json"]),
    "profile --from --perfetto": ([*REPORT, "--perfetto", OUT], ["profile.json"]),
    "quantize -o": (["quantize", "MODEL", "--type", "q4_0", "-o", OUT], []),
    "synth -o": (["synth", "--shape", "tiny", "-o", OUT], []),
}
CHECKPOINT = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]


def prepare(stock):
    stock.reports = stock.whole / "reports"
    stock.reports.mkdir()
    asked = ["-m", stock.checkpoints["llama2"], "-n", "2"]
    stock.run("profile", *asked, "-p", "hello", "--temp", "0", "--json", stock.reports / "profile.json")
    stock.run("verify", *asked, "--write", stock.reports / "transcript.json")
    (stock.reports / "prompt.txt").write_text("hello there")
    (stock.reports / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")


def furnish(trial, number):
    """A user's folder: models of both forms and everything else that is read. Returns the flags of a model."""
    for path in trial.stock.reports.iterdir():
        copy(path, trial.folder)
    copy(trial.stock.ggufs["q8_0"], trial.folder, "model.gguf")
    copy(trial.stock.checkpoints["llama2"], trial.folder, "checkpoint")
    return ("model.gguf", "checkpoint")[number % 2]


def command_of(flags, model, target):
    filled = []
    for word in flags:
        filled += ["-m", model] if word == "MODEL" else [str(target)] if word == OUT else [word]
    return filled


def ways_to(trial, path):
    """The same file by other names."""
    folder = trial.folder
    link, hard, folder_link = folder / "link", folder / "hard.json", folder / "folder-link"
    link.symlink_to(path)
    os.link(folder / path, hard)
    folder_link.symlink_to(path.parent if path.parent.name else ".")
    return [str(path), str(folder / path), f"checkpoint/../{path}", "link", "hard.json", f"folder-link/{path.name}"]


def files_of(folder):
    return {name: value for name, value in digest(folder).items()
            if not name.startswith((".std", "state/", "cache/", "home/"))}


def same_files(trial, run, before, what, besides=()):
    after = files_of(trial.folder)
    changed = sorted(name for name in before.keys() | after.keys()
                     if before.get(name) != after.get(name) and name not in besides)
    trial.demand(run, not changed, what, ", ".join(changed[:4]))


def onto_inputs(trial, number):
    """An output is aimed at something that the same run reads, by one of its names."""
    model = furnish(trial, number)
    flags, inputs = list(OUTPUTS.values())[number % (len(OUTPUTS) - 1)]  # synth reads nothing
    inputs = [trial.folder / name for name in inputs]
    if "MODEL" in flags:
        inputs += [trial.folder / model] if model.endswith(".gguf") else [trial.folder / model / n for n in CHECKPOINT]
    path = trial.random.choice(inputs).relative_to(trial.folder)
    target = trial.random.choice(ways_to(trial, path))
    before = files_of(trial.folder)
    force = ["--force"] if trial.random.random() < 0.25 else []
    run = trial.run(*command_of(flags, model, target), *force)
    trial.settle(run, "nothing lost")
    trial.must_refuse(run, "an output onto its own input")
    same_files(trial, run, before, "destroyed an input")


def onto_strangers(trial, number):
    """Whatever stands at the output's place and is no earlier report of its kind stays, unless --force is given."""
    model = furnish(trial, number)
    flags, _ = list(OUTPUTS.values())[number % len(OUTPUTS)]
    stranger = trial.folder / "diary.gguf"
    stranger.write_bytes([b"Dear diary", trial.stock.ggufs["f32"].read_bytes(), b"{\"mine\": 1}", b"\x00" * 100]
                         [number // len(OUTPUTS) % 4])
    before = files_of(trial.folder)
    run = trial.run(*command_of(flags, model, stranger.name))
    trial.settle(run, "nothing lost")
    trial.must_refuse(run, "an output onto a file that is not its own")
    same_files(trial, run, before, "destroyed a stranger's file")
    forced = trial.run(*command_of(flags, model, stranger.name), "--force")
    trial.demand(forced, forced.code == 0, "did not replace a file though --force was given")
    same_files(trial, forced, before, "touched more than --force allows", besides=[stranger.name])


def onto_own_reports(trial, number):
    """A report may replace an earlier one of its kind, and an empty file."""
    model = furnish(trial, number)
    kinds = [item for item in OUTPUTS.items() if item[0] not in ("eval --logits", "quantize -o", "synth -o")]
    _, (flags, _) = kinds[number % len(kinds)]
    (trial.folder / "report").write_bytes(b"")
    for time_ in ("the first time", "again"):
        run = trial.run(*command_of(flags, model, "report"))
        trial.demand(run, run.code == 0, f"could not write its report {time_}")
        trial.demand(run, (trial.folder / "report").stat().st_size > 0, "left an empty report")


def onto_checkpoints(trial, number):
    """A folder with files is not written into, nor replaced."""
    furnish(trial, number)
    command = [["synth", "--shape", "tiny", "-o", "checkpoint"], ["compile", "-m", "model.gguf", "-o", "checkpoint"],
               ["quantize", "-m", "model.gguf", "--type", "q8_0", "-o", "checkpoint"],
               ["synth", "--shape", "tiny", "-o", "checkpoint/"], ["synth", "--shape", "tiny", "-o", "."]][number % 5]
    before = files_of(trial.folder)
    run = trial.run(*command)
    trial.settle(run, "nothing lost")
    trial.must_refuse(run, "an output onto somebody's folder")
    same_files(trial, run, before, "changed somebody's folder")


def one_file_twice(trial, number):
    furnish(trial, number)
    command = [[*REPORT, "--json", "x", "--html", "x"], [*REPORT, "--perfetto", "x", "--html", "./x"],
               ["verify", "-m", "model.gguf", "-n", "2", "--against", "transcript.json", "--json", "x", "--write", "x"],
               ["profile", "-m", "model.gguf", *ASK, "--receipt", "x", "--json", "checkpoint/../x"],
               ["diagnose", "-m", "model.gguf", "-p", "x", "-n", "1", "--json", "x", "--html", "x"]][number % 5]
    run = trial.run(*command)
    trial.must_refuse(run, "two outputs into one file")


def special_files(trial, number):
    """A pipe at the output's place is written to or refused; it is not replaced by a file."""
    model = furnish(trial, number)
    flags, _ = list(OUTPUTS.values())[number % len(OUTPUTS)]
    pipe = trial.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # so that opening does not wait for the other end
    try:
        run = trial.run(*command_of(flags, model, pipe.name))
    finally:
        os.close(reader)
    trial.demand(run, stat.S_ISFIFO(os.lstat(pipe).st_mode), "replaced a pipe by a file")


def unwritable(trial, number):
    model = furnish(trial, number)
    flags, _ = list(OUTPUTS.values())[number % len(OUTPUTS)]
    target = ["absent/folder/x", "prompt.txt/x", "checkpoint", "/proc/x", "", "x" * 300, "/"][number % 7]
    before = files_of(trial.folder)
    run = trial.run(*command_of(flags, model, target))
    trial.must_refuse(run, "an output that cannot be written")
    same_files(trial, run, before, "changed files")


def full_disk(trial, number):
    """Files may not grow past a few kilobytes, as on a full disk: no half of one stays."""
    model = furnish(trial, number)
    flags, _ = list(OUTPUTS.values())[number % len(OUTPUTS)]
    before = files_of(trial.folder)
    ignored = "trap '' XFSZ; " if number // len(OUTPUTS) % 2 == 0 else ""  # EFBIG alone, or the signal too
    blocks = trial.random.choice([4, 8])
    run = trial.run(*command_of(flags, model, "new"), before=f"{ignored}ulimit -f {blocks};", after=">/dev/null")
    besides = ["new"] if run.code == 0 else []  # it was small enough
    same_files(trial, run, before, "left half a file", besides)
    if run.code == 0 and "--json" in flags:
        trial.read_json(run, trial.folder / "new")


FULL_STDOUT = [["--help"], ["--version"], ["run", "--help"], ["inspect", "-m", "model.gguf"], ["devices"],
               ["inspect", "-m", "model.gguf", "--json", "--tensors"], ["tokenize", "-m", "model.gguf", "--text", "x"],
               ["run", "-m", "model.gguf", "-p", "x", "--raw", "-n", "2"], ["plan", "--machine", "strix"],
               ["bench", "-m", "model.gguf", "-p", "4", "-n", "0", "-r", "1"], REPORT, ["kernels", "list", "--json"],
               ["profile", "--diff", "profile.json", "profile.json"], ["doctor", "--json"],
               ["perplexity", "-m", "model.gguf", "-f", "prompt.txt", "--window", "6", "--stride", "3"],
               ["verify", "-m", "model.gguf", "-n", "2"],
               ["chat", "-m", "model.gguf", "-n", "2"], ["template", "--messages", "messages.json", "-m", "model.gguf"]]


def full_stdout(trial, number):
    furnish(trial, number)
    (trial.folder / "messages.json").write_text('[{"role": "user", "content": "hello"}]')
    command = FULL_STDOUT[number % len(FULL_STDOUT)]
    run = trial.run(*command, text="hello\n", after=">/dev/full" if number < len(FULL_STDOUT) else ">&-")
    trial.demand(run, run.code == 1, "lost what it had to say, and says nothing of it")


LONG = [["synth", "--shape", "qwen2.5-0.5b", "--type", "q8_0", "-o", "new.gguf"],
        ["synth", "--shape", "qwen2.5-0.5b", "-o", "new-folder"],
        ["profile", "-m", "model.gguf", "-p", "hello", "--raw", "-n", "60", "-r", "60", "--json", "new.json"],
        ["verify", "-m", "model.gguf", "-n", "80", "--full", "--json", "new.json"],
        ["eval", "-m", "model.gguf", "--reference", "--ids", ",".join(["7"] * 120), "--logits", "new.f32"],
        ["compile", "-m", "model.gguf", "-o", "new-folder"]]


def signals(trial, number):
    """Interrupted at any moment: nothing half-made stays, nothing read is touched."""
    furnish(trial, number)
    before = files_of(trial.folder)
    command = LONG[number % len(LONG)]
    sent = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[number // len(LONG) % 3]
    began = time.monotonic()
    process = trial.start(*command)
    time.sleep(trial.random.uniform(0.002, 0.35))
    os.kill(process.pid, sent)  # not yet waited for, so the number is still its own
    run = trial.finish(process, command, began, sent)
    trial.settle(run, "nothing lost")
    whole = ["new.gguf", "new.json", "new.f32"] if run.code == 0 else []
    made = trial.folder / "new-folder"
    if command[-1] == "new-folder" and (run.code == 0 or (made / ".decode_flags").exists()):
        return  # whole, even where the import of what is in it was interrupted
    same_files(trial, run, before, "left something half-made", whole)


def shrinking_model(trial, number):
    """The model's file is truncated while it is in use."""
    furnish(trial, number)
    if number % 2:
        copy(trial.stock.checkpoints["llama3"], trial.folder, "model")
    model, file = (("model", "model/model.safetensors") if number % 2 else ("model.gguf", "model.gguf"))
    device = [] if number % 3 else ["--device", "vnpu", "--prompt-rows", "64"]
    command = ["bench", "-m", model, "-p", "0", "-n", "60", "-r", "60", "--no-warmup", *device]
    began = time.monotonic()
    process = trial.start(*command)
    time.sleep(trial.random.uniform(0.0, 0.15))
    os.truncate(trial.folder / file, trial.random.choice([0, 4096, 20000]))
    trial.settle(trial.finish(process, command, began), "nothing lost")


KINDS = {
    "onto-inputs": (15, 600, onto_inputs),
    "onto-strangers": (6, 64, onto_strangers),
    "onto-own-reports": (3, 26, onto_own_reports),
    "onto-checkpoints": (5, 5, onto_checkpoints),
    "one-file-twice": (2, 5, one_file_twice),
    "special-files": (3, 16, special_files),
    "unwritable": (4, 56, unwritable),
    "full-disk": (5, 96, full_disk),
    "full-stdout": (6, 36, full_stdout),
    "signals": (3, 120, signals),
    "shrinking-model": (2, 60, shrinking_model),
}
