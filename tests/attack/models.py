"""Hostile model files: every command that reads a model meets each of them."""
import checkpoint_damage
import gguf_damage
from gguf_damage import REFUSE, SAME
from trial import digest

GREEDY = ["--temp", "0", "--seed", "1"]
RUN = ["run", "-p", "hello", "--raw", "-n", "3", *GREEDY]
INSPECT = ["inspect", "--tensors"]
EVAL = ["eval", "--ids", "5,6,7", "--logits", "logits.f32"]
# A file meets inspect, run and one of these in turn.
OTHERS = [EVAL, ["quantize", "--type", "q4_0", "-o", "out.gguf"],
          ["perplexity", "-f", "text.txt", "--window", "24", "--stride", "12"],
          [*RUN, "--device", "vnpu", "--prompt-rows", "64"],
          ["verify", "-n", "2", "--json", "verify.json"],
          ["bench", "-p", "4", "-n", "2", "-r", "1", "--no-warmup", "-o", "json"],
          ["inspect", "--json"]]
VOCABULARY_ALONE = [["tokenize", "--text", "the owl"], ["tokenize", "--text", "the owl", "--json"],
                    ["detokenize", "--ids", "3,4,5"]]
OUTPUTS = ("logits.f32", "out.gguf", "verify.json")

TEMPLATES = [
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 'x' * 10000000000 }}", "{{ 'x' | indent(10000000000) }}", "{{ range(10000000000) | list | length }}",
    "{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775808 // -1 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}",
    "{{ 2 ** 9999 }}",
    "{{ messages[99999999999999999999] }}", "{{ messages[-5].content }}", "{{ undefined.x.y }}", "{{ messages[::0] }}",
    "{{ '%s' % messages }}", "{{ raise_exception('\x1b]0;x\x07') }}", "{{ messages.__class__ }}", "{{ cycler }}",
    "{% include '/etc/passwd' %}", "{% extends 'x' %}", "{% if %}", "{% for %}", "{{", "{%", "{#", "}}", "{{ }}",
    "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", "{{ " + "[" * 20000 + "]" * 20000 + " }}",
    "{{ " + "not " * 50000 + "1 }}", "{{ 1" + " + 1" * 50000 + " }}", "{% if 1 %}" * 5000 + "x" + "{% endif %}" * 5000,
    "{{ messages | " + " | ".join(["tojson"] * 40) + " }}", "\x00", "\xff" * 10, "{{ '\x1b[2J' }}",
    "{{ messages | map(attribute='content') | join('\x1b') }}", "{{ 'a' | replace('', 'bbbbbbbb' * 1000000) }}",
    "{{ strftime_now('%' * 100000) }}", "{% set x = x %}{{ x }}", "{{ [messages] * 100000000 }}",
    "{% generation %}{% endgeneration %}", "{{ {'a': 1}[[]] }}", "{{ messages == messages[0] }}", "{{ 1e999 }}",
    "{{ 'é' * 3 }}{{ '\ud83e\udd89'.encode }}".encode("utf-8", "replace").decode()]


def prepare(stock):
    """What the undamaged models answer."""
    stock.answers = {}
    for path in (stock.ggufs["q8_0"], stock.checkpoints["llama2"]):
        stock.answers[path] = stock.run(*RUN, "-m", path).stdout


def commands_for(number, expected):
    if expected == REFUSE or number % 2:
        return [INSPECT, RUN, OTHERS[number % len(OTHERS)]]
    return [INSPECT, RUN, (OTHERS + VOCABULARY_ALONE)[number // 2 % (len(OTHERS) + len(VOCABULARY_ALONE))]]


def meet(trial, path, commands, expected, answer=None):
    (trial.folder / "text.txt").write_text(trial.stock.text.read_text())
    before = digest(path)
    for command in commands:
        run = trial.run(*command, "-m", path.name)
        if expected == REFUSE:
            trial.must_refuse(run, "a model that contradicts itself")
        if expected == SAME:
            trial.demand(run, run.code == 0, "refused a model that is whole")
            if command == RUN:
                trial.demand(run, run.out == answer, "answered otherwise than the undamaged model")
        left = [name for name in OUTPUTS if (trial.folder / name).exists()]
        trial.demand(run, run.code == 0 or run.command == "verify" or not left, "failed and left a result file")
        if run.code == 0 and "verify.json" in left:
            trial.read_json(run, trial.folder / "verify.json")
        for name in left:
            (trial.folder / name).unlink()
    trial.demand(trial.runs[-1], digest(path) == before, "changed its input")


def gguf_case(damage):
    def attack(trial, number):
        content, expected = damage(trial, number)
        path = trial.folder / "model.gguf"
        path.write_bytes(content)
        meet(trial, path, commands_for(number, expected), expected, trial.stock.answers[trial.stock.ggufs["q8_0"]])
    return attack


def checkpoint_case(damage):
    def attack(trial, number):
        folder, expected = damage(trial, number)
        meet(trial, folder, commands_for(number, expected), expected,
             trial.stock.answers[trial.stock.checkpoints["llama2"]])
    return attack


def files(trial, number):
    """What a command needs is absent, empty or a folder. Less is needed to look at a model than to run it."""
    folder, expected = checkpoint_damage.files(trial, number)
    meet(trial, folder, [RUN, OTHERS[2], OTHERS[3]], expected)
    trial.run(*INSPECT, "-m", folder.name)


def not_finite(trial, number):
    """A weight that is not a number is found by what computes with it, and named."""
    content, expected = gguf_damage.not_finite(trial, number)
    path = trial.folder / "model.gguf"
    path.write_bytes(content)
    meet(trial, path, [RUN, EVAL, OTHERS[1 + number % 5]], expected)


def template(trial, number):
    """Templates that never end, recurse, grow without end or are none."""
    folder = checkpoint_damage.checkpoint(trial)
    text = TEMPLATES[number % len(TEMPLATES)]
    if number >= len(TEMPLATES):
        other = trial.random.choice(TEMPLATES)
        text = text[:trial.random.randrange(len(text) + 1)] + other[trial.random.randrange(len(other)):]
    jinja = trial.folder / "template.jinja"
    jinja.write_text(text, errors="replace")
    (trial.folder / "messages.json").write_text('[{"role": "user", "content": "hello"}]')
    asked = ["-m", folder.name, "--chat-template", jinja.name, "-n", "2", *GREEDY]
    trial.run("template", "--file", jinja.name, "--messages", "messages.json")
    trial.run("run", *asked, "-p", "hello")
    run = trial.run("chat", *asked, "-v", text="hello\n")
    trial.demand(run, run.code != 0 or b"executed on" in run.err, "chat ended well though no turn was answered")


KINDS = {
    **{"gguf-" + kind: (small, full, gguf_case(damage)) for kind, (small, full, damage) in gguf_damage.KINDS.items()},
    **{kind: (small, full, checkpoint_case(damage)) for kind, (small, full, damage) in checkpoint_damage.KINDS.items()},
    "files": (2, 9, files),
    "not-finite": (3, 80, not_finite),
    "template": (8, 120, template),
}
