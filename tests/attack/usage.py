"""Absurd command lines: flags as the program's own help lists them, with values that must not be accepted."""
import functools
import re
import subprocess

from stock import copy

COMMANDS = ["run", "chat", "tokenize", "detokenize", "template", "inspect", "eval", "perplexity", "bench", "profile",
            "verify", "diagnose", "quantize", "synth", "plan", "compile", "power"]
# A command line of each that runs, and runs short. A flag under attack replaces its own.
RUNNING = {
    "run": ["-p", "hello", "--raw", "-n", "2", "--temp", "0"], "chat": ["-n", "2", "--temp", "0"],
    "tokenize": ["--text", "hello"], "detokenize": ["--ids", "3,4"], "template": ["--messages", "messages.json"],
    "inspect": [], "eval": ["--ids", "5,6", "--logits", "out.f32"],
    "perplexity": ["-f", "text.txt", "--window", "24", "--stride", "12"],
    "bench": ["-p", "4", "-n", "2", "-r", "1", "--no-warmup"],
    "profile": ["-p", "hello", "--raw", "-n", "2", "--temp", "0"], "verify": ["-n", "2"],
    "diagnose": ["-p", "hello", "-n", "1"], "quantize": ["--type", "q8_0", "-o", "out.gguf"],
    "synth": ["--shape", "tiny", "-o", "out.gguf"], "plan": ["--machine", "strix"], "compile": ["--prompt-rows", "64"],
    "power": ["-p", "4", "-n", "2", "--idle", "0.01", "--settle", "0", "--load", "0.01", "-r", "1"],
}
WITHOUT_MODEL = {"synth"}
MAY_BE_EMPTY = {"--system", "--prompt", "-p", "--text", "--why", "--bos-token", "--eos-token"}
NO_NUMBERS = ["", " ", "abc", "1e3", "0x10", "+5", " 5", "5 ", "5x", "1,,2", "--", "nan", "inf", "-inf", "1e999", "-1",
              "99999999999999999999", "18446744073709551616", "٣", "1\x1b[2J", "1_000", "1.5.2", "9" * 400]
# For these a fraction or a power of ten is a number.
FRACTIONS = ["", "abc", "0x10", "5x", "nan", "inf", "-inf", "1e999", "1\x1b[2J", "1,2", "9" * 400]
STRANGE = ["\x1b[2J", "\udcff\udcfe", "é" * 50, "\u202egnp", "x" * 100_000, "../../../..", "/dev/null", "%s%n", "-",
           "{}"]


def prepare(stock):
    stock.flags = {command: flags_of(stock, command) for command in COMMANDS}


def flags_of(stock, command):
    """(flag, what its value is called) of a command; no value for switches."""
    text = subprocess.run([stock.program, command, "--help-all"], capture_output=True, check=True).stdout.decode()
    value = r"\[?[A-Z][A-Za-z|=:\[\],.]*|[a-z0-9_]+(?:\|[A-Za-z0-9_-]+)+"
    found = re.findall(rf"^  (?:-\w, )?(--?[\w-]+)(?: ({value}))?(?:\s{{2,}}|$)", text, re.MULTILINE)
    return [(flag, value) for flag, value in found if flag not in ("--help", "--help-all", "--version")]


def furnish(trial):
    copy(trial.stock.text, trial.folder)
    copy(trial.stock.ggufs["q8_0"], trial.folder, "model.gguf")
    (trial.folder / "messages.json").write_text('[{"role": "user", "content": "hello"}]')


def with_flag(command, *flags):
    """The running command line with these flags, which replace those that it has."""
    words, given = list(RUNNING[command]), {f for f in flags if f.startswith("-")}
    short = {"--tokens": "-n", "--prompt": "-p", "--n-prompt": "-p", "--n-gen": "-n", "--repetitions": "-r",
             "--file": "-f", "--output": "-o"}
    given |= {short[f] for f in given if f in short}
    kept, i = [], 0
    while i < len(words):
        has_value = i + 1 < len(words) and not words[i + 1].startswith("-")
        if words[i] not in given:
            kept += words[i:i + 1 + has_value]
        i += 1 + has_value
    model = [] if command in WITHOUT_MODEL or given & {"-m", "--model", "--shape"} else ["-m", "model.gguf"]
    return [command, *model, *kept, *flags]


@functools.cache
def value_flags(flags, *names):
    return [(f, v) for f, v in flags if v and (not names or v.rstrip(",.") in names)]


def chosen(trial, number, *names):
    """The number-th of all (command, flag) whose values are called so."""
    every = [(command, flag, value) for command, flags in trial.stock.flags.items()
             for flag, value in value_flags(tuple(flags), *names)]
    return every[number % len(every)]


def empty(trial, number):
    furnish(trial)
    command, flag, _ = chosen(trial, number)
    run = trial.run(*with_flag(command, flag, ""))
    if flag not in MAY_BE_EMPTY:
        trial.demand(run, run.code == 2, "took an empty value")


def numbers(trial, number):
    furnish(trial)
    command, flag, _ = chosen(trial, number, "N", "K", "UINT")
    value = trial.random.choice(NO_NUMBERS)
    run = trial.run(*with_flag(command, flag, value))
    is_no_limit = flag == "--tokens" and value == "-1"
    trial.demand(run, run.code == (0 if is_no_limit else 2), "took what is no number of its kind")


def fractions(trial, number):
    furnish(trial)
    command, flag, _ = chosen(trial, number, "X", "P", "S")
    run = trial.run(*with_flag(command, flag, trial.random.choice(FRACTIONS)))
    trial.demand(run, run.code == 2, "took what is no number of its kind")


def huge(trial, number):
    """Numbers that are some, and far more than any machine has."""
    furnish(trial)
    command, flag, _ = chosen(trial, number, "N", "K", "UINT", "SIZE")
    if flag not in ("--repetitions", "-r", "--n-gen", "--n-prompt", "--n-depth"):  # a long wait is what was asked for
        trial.run(*with_flag(command, flag, trial.random.choice(["1000000", "4294967295", "2147483648", "65536"])))


def strange(trial, number):
    furnish(trial)
    command, flag, _ = chosen(trial, number)
    if flag not in ("-o", "--output", "--json", "--html", "--perfetto", "--logits", "--write", "--receipt", "--root"):
        trial.run(*with_flag(command, flag, trial.random.choice(STRANGE)))


def twice(trial, number):
    furnish(trial)
    command, flag, _ = chosen(trial, number)
    trial.run(*with_flag(command, flag, "1", flag, "2"))


def unknown(trial, number):
    furnish(trial)
    command = COMMANDS[number % len(COMMANDS)]
    flag = ["--no-such-flag", "--Model", "-Z", "---", "--=", "--\x1b[2J", "--device=", "stray", "--require=npu",
            "--help=1", "--threads=-1"][number // len(COMMANDS) % 11]
    run = trial.run(*with_flag(command, flag))
    trial.demand(run, run.code in (2, 3), "took a flag that it has not")


# Name, value, and whether it has to be refused.
VARIABLES = [("TYTO_DEVICE", "npu", True), ("TYTO_", "", True), ("TYTO_X\x1b", "1", True), ("HOME", "", False),
             ("XDG_STATE_HOME", "/proc/x", False), ("XDG_CACHE_HOME", "text.txt", False),
             ("HF_HUB_CACHE", "\x1b[2J", False), ("LC_ALL", "tlh_QO", False), ("PATH", "", False)]


def environment(trial, number):
    """There are no environment controls; folders that cannot be used are no crash."""
    furnish(trial)
    command = COMMANDS[number % len(COMMANDS)]
    name, value, refused = VARIABLES[number % len(VARIABLES)]
    run = trial.run(*with_flag(command), environment={name: value})
    if refused:
        trial.demand(run, run.code == 2, "ran with an environment variable that means nothing")


def require(trial, number):
    """--require is never satisfied by a device that is not there."""
    furnish(trial)
    command = [c for c in COMMANDS if "--require" in dict(trial.stock.flags[c])][number % 9]
    value = ["npu", "npu:prefill", "npu:decode", "vnpu", "npu:", ":", "", "NPU", "gpu", "npu:prefil", "npu,cpu",
             "cpu:nothing"][number // 9 % 12]
    device = [[], ["--device", "vnpu", "--prompt-rows", "64"]][number % 2]
    run = trial.run(*with_flag(command, "--require", value, *device), text="hello\n")
    trial.must_refuse(run, "a requirement that nothing satisfied")


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "<.", ">/dev/full 2>/dev/full"]


def closed(trial, number):
    furnish(trial)
    command = COMMANDS[number % len(COMMANDS)]
    how = CLOSED[number // len(COMMANDS) % len(CLOSED)]
    trial.run(*with_flag(command), after=how, heard="2>" not in how)


def pairs(trial, number):
    """Any flags with any values together."""
    furnish(trial)
    command = trial.random.choice(COMMANDS)
    words = []
    for flag, value in trial.random.sample(trial.stock.flags[command], min(3, len(trial.stock.flags[command]))):
        choices = value.split("|") if "|" in value else ["1", "2", "0", "cpu", "vnpu", "f16", "text.txt", "x", "0.5"]
        words += [flag, trial.random.choice(choices)] if value else [flag]
    trial.run(*with_flag(command, *words), text="hello\n")


KINDS = {
    "empty": (12, 260, empty),
    "numbers": (12, 600, numbers),
    "fractions": (6, 120, fractions),
    "huge": (6, 200, huge),
    "strange": (6, 260, strange),
    "twice": (4, 260, twice),
    "unknown": (12, 204, unknown),
    "environment": (9, 153, environment),
    "require": (9, 108, require),
    "closed": (7, 102, closed),
    "pairs": (8, 400, pairs),
}
