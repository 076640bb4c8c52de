"""The command lines that help and documents show, and a folder in which they can be run: what they name is there, small
and made up."""
import json
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness import FIXTURES, OWLET, ROOT, TYTO
from hub import Hub, sha256
from lora_files import gguf_tensors, random_pair, write_gguf, write_peft
from npu_images import elf

# A transcript has a test of its own: first_half_hour_test.py.
DOCUMENTS = [ROOT / "README.md", ROOT / "HACKING.md",
             *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "first-half-hour.md")]
# What stands for something of the reader's. "F" is another file in each line.
PLACEHOLDERS = {"MODEL": "model.gguf", "PROMPT": "Hello", "TEXT": "Hello", "FILE": "r.json", "D": "cpu", "ID": "1a2b3c4d",
                "DIR": "mlir-air/programming_examples/llms/llama32_1b", "NAME": "llama-3.2-1b", "COMMAND...": "true",
                "COMMAND": "true"}


@dataclass(frozen=True)
class Example:
    where: str  # "docs/bench.md:3", "tyto run --help"
    text: str  # as it is shown, without what is said about it

    def __str__(self):
        return f"{self.where}: {self.text}"


def without_remark(line):
    """The command of a line, before two spaces or a # outside of quotes, behind which it is explained."""
    quote = None
    for i, letter in enumerate(line):
        if quote:
            quote = None if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif line.startswith("  ", i) or line.startswith(" #", i):
            return line[:i]
    return line


def joined_lines(lines):
    """A line that ends with a backslash goes on in the next."""
    joined, begin = [], ""
    for number, line in lines:
        if line.endswith("\\"):
            begin += line[:-1].rstrip() + " "
        else:
            joined.append((number, begin + (line.strip() if begin else line)))
            begin = ""
    return joined


def help_texts(flag="--help"):
    """What the program, each command, and each command below it answers to --help or --help-all."""
    names = subprocess.run([TYTO, "manual", "--names"], capture_output=True, text=True, timeout=60, check=True).stdout
    for path in ([], *map(str.split, names.splitlines())):
        shown = subprocess.run([TYTO, *path, flag], capture_output=True, text=True, timeout=60, check=True).stdout
        yield path, shown


def help_examples():
    for path, text in help_texts("--help-all"):
        lines = re.split(r"^Examples?:\n", text, maxsplit=1, flags=re.MULTILINE)
        shown = lines[1].split("\n\n")[0].splitlines() if len(lines) > 1 else []
        for _, line in joined_lines(list(enumerate(shown))):
            yield Example(" ".join(["tyto", *path, "--help"]), without_remark(line.strip()))


def code_lines(document):
    """(number, line) of a document's code blocks, which are indented. What is indented further is output."""
    lines, goes_on = [], False
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if goes_on or re.match(r" {4}\S", line):
            lines.append((number, line.strip()))
        goes_on = line.startswith("    ") and line.endswith("\\")
    return joined_lines(lines)


def name_of(document):
    return str(document.relative_to(ROOT))


def document_examples():
    for document in DOCUMENTS:
        for number, line in code_lines(document):
            if re.match(r"([^#]*(\||&&) )?tyto [a-z]+( |$)", line):
                yield Example(f"{name_of(document)}:{number}", without_remark(line))


def make_targets():
    """(where, target) of every `make TARGET` in a document, in code blocks and sentences."""
    for document in DOCUMENTS:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            for command in re.findall(r"^    make ([^#]*)", line) + re.findall(r"`make ([^`]*)`", line):
                for word in shlex.split(re.split("&&", without_remark(command.strip()))[0]):
                    if re.fullmatch(r"[a-z][-a-z]*", word):
                        yield f"{name_of(document)}:{number}", word


def scripts():
    """Every program of ours that is called in a code block of a document."""
    for document in DOCUMENTS:
        for number, line in code_lines(document):
            for word in re.findall(r"(?:^|python3 )((?:bench|tools|tests)/\S+)", line):
                yield f"{name_of(document)}:{number}", word


def optional_flags(text):
    return re.findall(r"(?<![-\w])--?[a-z][-a-z]*", " ".join(re.findall(r"\[([^\]]*)\]", text)))


def runnable(text, number):
    """With something real for each placeholder, and without what is optional."""
    text = re.sub(r" \[[^\]]*\]", "", text).replace(" ...", "")
    words = {**PLACEHOLDERS, "F": f"file{number}"}
    return re.sub(r"(?<![-\w./])([A-Z]+(?:\.\.\.)?)(?![-\w])", lambda found: words.get(found[1], found[1]), text)


def importance(name, width):
    """An importance matrix of one tensor, in llama.cpp's older form."""
    return struct.pack(f"<ii{len(name)}sii{width}f", 1, len(name), name.encode(), 1, width, *[1.0] * width)


class Sandbox:
    """A home, an installation with a small model in the place of the shipped one, and the files that examples name."""

    def __init__(self, folder):
        self.folder = folder
        self.work = folder / "work"
        self.environment = {
            **os.environ, "HOME": str(folder / "home"), "HF_HOME": str(folder / "hf"), "NO_COLOR": "1",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8",
            **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}}
        for part in ("bin", "home", "work/models", "share/tyto/models"):
            (folder / part).mkdir(parents=True)
        self.install()
        self.add_models()
        self.add_files()
        self.add_kernels()
        self.ids = self.add_results()

    def run(self, command, stdin="Hello.\n"):
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.work, env=self.environment, input=stdin,
                              capture_output=True, text=True, errors="replace", timeout=300)

    def must(self, command):
        result = self.run(command)
        assert result.returncode == 0, f"{command}: {result.stderr}"
        return result.stdout

    def install(self):
        program = self.folder / "bin" / "tyto"  # a link would lead to the model that really ships
        try:
            os.link(TYTO, program)
        except OSError:
            shutil.copy(TYTO, program)
        context = json.loads((OWLET / "config.json").read_text())["max_position_embeddings"]
        shipped = self.checkpoint(self.folder / "share/tyto/models/owlet", context)
        (self.work / "models/owlet").symlink_to(shipped)

    @staticmethod
    def checkpoint(folder, context, **other):
        shutil.copytree(FIXTURES / "llama3" / "model", folder)
        config = json.loads((folder / "config.json").read_text())
        config.update(max_position_embeddings=context, **other)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def add_models(self):
        checkpoint = self.checkpoint(self.work / "Llama-3.2-1B-Instruct", 8192)
        (self.work / "Llama-3.2-1B").symlink_to(checkpoint)
        for name in ("model", "a", "b", "large", "small"):
            self.must(f"tyto quantize -m ./Llama-3.2-1B-Instruct --type f16 -o {name}.gguf")
        large = self.checkpoint(self.work / "large", 8192, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
        (large / "model.safetensors").unlink()  # its config is enough to say how kernels are built
        repository = self.folder / "hf/hub/models--Qwen--Qwen2.5-0.5B-Instruct"
        shutil.copytree(FIXTURES / "qwen2" / "model", repository / "snapshots/0123abcd")
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("0123abcd")
        model = (self.work / "model.gguf").read_bytes()
        (self.work / "model-f16.gguf").write_bytes(model)
        (self.work / "model.imatrix.gguf").write_bytes(importance("blk.0.attn_q.weight", 256))
        pair = random_pair(256, 256, 4, random.Random(1), 0.05)
        write_gguf(self.work / "style.gguf", gguf_tensors({"blk.0.attn_q.weight": pair}))
        write_peft(self.work / "facts", {"model.layers.0.self_attn.q_proj": pair}, 4)
        self.add_ollama("llama3.2", "1b", model)
        self.hub = Hub({"m-Q4_K_M.gguf": model}, repo=None)
        self.environment["HF_ENDPOINT"] = self.hub.url()

    def add_ollama(self, name, tag, model):
        store = self.folder / "home/.ollama/models"
        digest = sha256(model)
        manifest = store / "manifests/registry.ollama.ai/library" / name / tag
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(model)}]}))
        (store / "blobs").mkdir()
        (store / "blobs" / f"sha256-{digest}").write_bytes(model)

    def add_files(self):
        message = {"role": "user", "content": "What is the weather in Bern?"}
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
            "place": {"type": "string"}}}}}
        schema = {"type": "object", "properties": {"name": {"enum": ["barn owl"]}}, "required": ["name"],
                  "additionalProperties": False}
        text = "The owl hunts at night. It hears what it cannot see. " * 40
        for name, content in {
                "notes.txt": text, "notes-longer.txt": text + "It waits.", "text.txt": text, "yes-or-no.gbnf": 'root ::= "yes" | "no"\n', "key": "secret\n",
                "owl.json": json.dumps(schema), "messages.json": json.dumps([message]), "calls.json": json.dumps([message]),
                "tools.json": json.dumps([tool])}.items():
            (self.work / name).write_text(content)
        self.must("tyto run Hello -n 2 --receipt r.json")
        for name in ("before", "after"):
            self.must(f"tyto profile Hello -n 2 --json {name}.json")
        self.must("tyto verify -m ./Llama-3.2-1B --write hf.json && tyto verify --write npu.json")

    def add_kernels(self):
        """The files of a build that MLIR-AIR would leave; the images' structure is true, the code in them made up."""
        examples = self.work / "mlir-air/programming_examples"
        cache = examples / "llms/llama32_1b/build_peano/prefill_kernel_cache"
        cache.mkdir(parents=True)
        square, kv, hidden = 2048 * 2048 * 2, 2048 * 512 * 2, 2048 * 8192 * 2
        images = {"flash_attn": ("attention_bf16", elf("attention_bf16", 4, [(0, 0, square), (1, 0, kv), (2, 0, kv),
                                                                             (3, 0, square)])),
                  "o_ffn": ("o_ffn", elf("o_ffn", 19, [(0, 0, square), (7, 0, hidden)]))}
        entries = {}
        for name, (kernel, image) in images.items():
            (cache / f"{name}.elf").write_bytes(image)
            entries[name] = {"output_binary": f"cache/{name}.elf", "kernel": f"main:{kernel}", "insts": None}
        (cache / "manifest.json").write_text(json.dumps({"_toolchain": {"llvm-aie": "21.0"}, "entries": entries}))
        (examples / "fused_decode").symlink_to(examples / "llms/llama32_1b")
        self.must(f"tyto kernels import {PLACEHOLDERS['DIR']}")

    def add_results(self):
        """What examples call 1a2b3c4d and 5e6f7a8b."""
        self.must("tyto bench -m model.gguf -p 4,5 -n 0 -r 1")
        ledger = self.folder / "state/tyto/results.jsonl"
        made = [json.loads(line)["id"] for line in ledger.read_text().splitlines()]
        return dict(zip(("1a2b3c4d", "5e6f7a8b"), made))

    def with_ids(self, command):
        for shown, made in self.ids.items():
            command = command.replace(shown, made)
        return command
