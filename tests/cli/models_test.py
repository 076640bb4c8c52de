#!/usr/bin/env python3
"""tyto models, and the names that -m takes, in a home with the stores of other tools."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

from harness import CACHE, TYTO, CliTest, main, tyto
from serving import Serving
from terminal_session import Session

for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "LLAMA_CACHE"):
    os.environ.pop(variable, None)

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
LAYER = "application/vnd.ollama.image."


class Home(CliTest):
    """A small GGUF, q8_0, in four stores; links where a store may have links."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = cls.work / "home"
        cls.cache = Path(CACHE.name)
        cls.ollama = cls.home / ".ollama/models"
        os.environ.update(HOME=str(cls.home), OLLAMA_MODELS=str(cls.ollama))
        cls.add_snapshot("org/tiny-GGUF", {"tiny-Q4_K_M.gguf": cls.model, "tiny-Q8_0.gguf": cls.model})
        cls.add_ollama("registry.ollama.ai/library/tiny/1b", cls.model)
        cls.add_ollama("registry.ollama.ai/library/tiny/latest", cls.model)
        cls.put(cls.home / ".lmstudio/models/pub/small-GGUF/small-Q8_0.gguf", cls.model)
        cls.put(cls.cache / "llama.cpp/org_old_old-q8_0.gguf", cls.model)

    @staticmethod
    def put(path, source):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
        return path

    @classmethod
    def add_snapshot(cls, repo, files):
        root = cls.cache / "huggingface/hub" / ("models--" + repo.replace("/", "--"))
        snapshot = root / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs/main").write_text("a" * 40)
        for name, source in files.items():
            cls.put(root / "blobs" / hashlib.sha256(name.encode()).hexdigest(), source)
            (snapshot / name).unlink(missing_ok=True)
            (snapshot / name).symlink_to("../../blobs/" + hashlib.sha256(name.encode()).hexdigest())
        return snapshot

    @classmethod
    def add_ollama(cls, name, source=None, layers=None):
        digest = hashlib.sha256(name.encode()).hexdigest()
        if source:
            cls.put(cls.ollama / "blobs" / f"sha256-{digest}", source)
        path = cls.ollama / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        layers = layers or [{"mediaType": LAYER + "model", "digest": "sha256:" + digest, "size": 1},
                            {"mediaType": LAYER + "template", "digest": "sha256:" + "0" * 64, "size": 1}]
        path.write_text(json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers}))

    def rows(self, *flags):
        result = tyto("models", "--json", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {row["name"]: row for row in json.loads(result.stdout)}


class ModelsTest(Home):
    def test_every_store_is_listed_with_what_runs(self):
        rows = self.rows()
        for name in ("hf:org/tiny-GGUF:Q4_K_M", "hf:org/tiny-GGUF:Q8_0", "ollama:tiny:1b", "ollama:tiny:latest",
                     "lmstudio:pub/small-GGUF:Q8_0", "llama.cpp:org_old_old-q8_0", "tyto:owlet"):
            with self.subTest(name):
                row = rows[name]
                self.assertTrue(row["runs"], row)
                self.assertTrue(row["where"].startswith("cpu"), row)
                self.assertEqual(row["family"], "llama")
                self.assertGreater(row["context"], 0)
                self.assertGreater(row["bytes"], 1000)
        self.assertEqual(rows["ollama:tiny:1b"]["type"], "bf16")
        self.assertEqual(rows["hf:org/tiny-GGUF:Q8_0"]["short_name"], "tiny-GGUF:Q8_0")
        table = tyto("models").stdout
        for word in ("name", "runs here", "tiny:1b", "owlet", "Ollama", "LM Studio", "Hugging Face"):
            self.assertIn(word, table)
        owlet, = [line for line in table.splitlines() if line.startswith("owlet ")]
        self.assertIn(" 22.6 MB ", owlet)  # its weights, as inspect has them; the folder holds more
        self.assertGreater(rows["tyto:owlet"]["bytes"], rows["tyto:owlet"]["weight_bytes"])

    def test_devices_do_not_say_their_names_twice(self):
        for line in tyto("devices").stdout.splitlines():
            self.assertNotRegex(line.strip(), r"^(cpu|npu|vnpu|vulkan): ")

    def test_each_name_runs(self):
        lengths = set()
        for name in ("ollama:tiny:1b", "ollama:tiny", "tiny:1b", "org/tiny-GGUF", "org/tiny-GGUF:Q8_0",
                     "hf:org/tiny-GGUF:q4_k_m", "hf:org/tiny-GGUF/tiny-Q8_0.gguf", "lmstudio:pub/small-GGUF",
                     "small-GGUF:Q8_0", "llama.cpp:org_old_old-q8_0"):
            with self.subTest(name):
                result = tyto("tokenize", "-m", name, "--text", "hello")
                self.assertEqual(result.returncode, 0, result.stderr)
                lengths.add(len(result.stdout))
        self.assertEqual(len(lengths), 1)
        result = tyto("run", "-m", "tiny:1b", "-p", "x", "-n", "2", "--temp", "0", "--raw")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = tyto("plan", "-m", "ollama:tiny:1b", "--machine", "strix", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_names_and_paths_open_no_model(self):
        self.put(self.home / ".lmstudio/models/pub/broken/broken.gguf", __file__)
        names = tyto("models", "--names").stdout.splitlines()
        first = ["tiny-GGUF:Q4_K_M", "tiny-GGUF:Q8_0", "tiny:1b", "tiny:latest", "small-GGUF:Q8_0", "owlet"]
        self.assertEqual([name for name in names if name in first], sorted(first, key=names.index))
        self.assertLess(max(map(names.index, first)), names.index("ollama:tiny:1b"))  # what people type comes first
        self.assertIn("lmstudio:pub/broken:broken.gguf", names)
        self.assertIn("ollama:tiny:1b", names)
        paths = tyto("models", "--paths").stdout.splitlines()
        self.assertIn(str(self.home / ".lmstudio/models/pub/broken/broken.gguf"), paths)
        row = self.rows()["lmstudio:pub/broken:broken.gguf"]
        self.assertEqual((row["runs"], row["where"]), (False, "no: not a GGUF file"))
        shutil.rmtree(self.home / ".lmstudio/models/pub/broken")
        self.check_error(tyto("models", "--names", "--paths"), 2, "--names and --paths exclude each other")

    def test_folders_of_ones_own(self):
        mine = self.work / "mine"
        self.put(mine / "deep/down/m.gguf", self.model)
        (mine / "loop").symlink_to(".")
        os.mkfifo(mine / "pipe.gguf")
        rows = self.rows("--in", mine)
        self.assertTrue(rows[str(mine / "deep/down/m.gguf")]["runs"])
        self.assertIn("not a regular file", rows[str(mine / "pipe.gguf")]["reason"])
        self.check_error(tyto("models", "--in", self.work / "absent"), 2, "--in")

    def test_unfinished_and_hostile_stores(self):
        hostile = self.home / "hostile"
        shutil.copytree(self.ollama, hostile)
        library = hostile / "manifests/registry.ollama.ai/library/bad"
        library.mkdir()
        layer = lambda digest: json.dumps({"layers": [{"mediaType": LAYER + "model", "digest": digest}]})
        (library / "passwd").write_text(layer("sha256:../../../../../../etc/passwd"))
        (library / "huge").write_text("[" * 3_000_000)
        (library / "none").write_text("")
        (library / "gone").write_text(layer("sha256:" + "1" * 64))
        (library / "new\nline\x1b[31m").write_text(layer("sha256:" + "1" * 64))
        os.mkfifo(library / "pipe")
        result = tyto("models", "--json", environment={"OLLAMA_MODELS": str(hostile)})
        rows = {row["name"]: row for row in json.loads(result.stdout)}
        self.assertEqual(rows["ollama:bad:gone"]["where"], "no: incomplete")
        self.assertTrue(rows["ollama:tiny:1b"]["runs"])
        self.assertNotIn("ollama:bad:passwd", rows)
        self.assertIn("is not the digest of a blob", result.stderr)
        self.assertNotIn("\x1b", result.stderr)
        table = tyto("models", environment={"OLLAMA_MODELS": str(hostile)}).stdout
        self.assertNotIn("\x1b", table)
        self.assertIn("bad:new\\u000aline", table)
        error = tyto("run", "-m", "ollama:bad:gone", "-p", "x", environment={"OLLAMA_MODELS": str(hostile)})
        self.check_error(error, 1, "ollama:bad:gone: incomplete, the download was not finished")

    def test_absent_and_ambiguous_names(self):
        self.check_error(tyto("run", "-m", "tiny-GGUF:Q6_K", "-p", "x"), 1, "no such model here (most like it here: tiny-GGUF:Q4_K_M",
                         "to download one: tyto pull)")
        self.check_error(tyto("run", "-m", "org/other", "-p", "x"), 1, "to download it: tyto pull org/other")
        self.check_error(tyto("run", "-m", "owlte", "-p", "x"), 1, "most like it here: owlet;")
        self.check_error(tyto("run", "-m", "ollama:small", "-p", "x"), 1, "ollama:small: is not in Ollama's store",
                         "to download it: ollama pull small")
        self.check_error(tyto("run", "-m", "org/tiny-GGUF:Q6_K", "-p", "x"), 1, "Q4_K_M, Q8_0 is on this machine",
                         "`tyto pull org/tiny-GGUF:Q6_K` fetches it")
        self.add_ollama("registry.ollama.ai/me/tiny/1b", self.model)
        self.check_error(tyto("run", "-m", "tiny:1b", "-p", "x"), 2, "2 models have this name",
                         "name one of ollama:tiny:1b, ollama:me/tiny:1b")
        shutil.rmtree(self.ollama / "manifests/registry.ollama.ai/me")

    def test_refusals_say_what_to_do(self):
        path = self.home / "tq2.gguf"
        name, key, value = b"blk.0.attn_k.weight", b"general.architecture", b"llama"
        text = lambda value: len(value).to_bytes(8, "little") + value
        number = lambda value, size=4: value.to_bytes(size, "little")
        path.write_bytes(b"GGUF" + number(3) + number(1, 8) + number(1, 8) + text(key) + number(8) + text(value)
                         + text(name) + number(1) + number(256, 8) + number(35) + number(0, 8))
        self.check_error(tyto("run", "-m", path, "-p", "x"), 1,
                         "its weights are tq2_0, which Tyto does not read (tensor blk.0.attn_k.weight)",
                         "get the same model as Q4_K_M or Q8_0")
        self.assertEqual(self.rows("--in", self.home)[str(path)]["where"], "no: its weights are tq2_0")

    def test_without_any_model(self):
        program = self.work / "elsewhere/bin/tyto"  # where the shipped model is not beside it
        self.put(program, TYTO)
        result = subprocess.run([program, "models"], capture_output=True, text=True, timeout=120,
                                env={**os.environ, "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere",
                                     "OLLAMA_MODELS": "/nowhere"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("`tyto pull` lists some", result.stdout)
        shipped = tyto("models", environment={"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere",
                                              "OLLAMA_MODELS": "/nowhere"})
        self.assertIn("1 model on this machine", shipped.stdout)
        self.assertIn("`tyto pull` lists models that fit this machine.", shipped.stdout)

    def test_served_ids_are_names_without_their_store(self):
        server = Serving(models=("ollama:tiny:1b", "hf:org/tiny-GGUF:Q8_0", "mine=lmstudio:pub/small-GGUF"))
        try:
            with urllib.request.urlopen(server.url + "/v1/models", timeout=60) as response:
                ids = [model["id"] for model in json.load(response)["data"]]
        finally:
            server.stop()
        self.assertEqual(ids, ["tiny:1b", "tiny-GGUF:Q8_0", "mine"])


class WordsTest(Home):
    """The model as the first word of a command."""

    def test_a_first_word_that_is_a_model(self):
        flags = ["-n", "4", "--temp", "0"]
        told = tyto("run", "-m", "tiny:1b", *flags, "-p", "Hello")
        self.assertEqual(told.returncode, 0, told.stderr)
        for words in (["tiny:1b", "Hello"], ["ollama:tiny:1b", "Hello"], ["org/tiny-GGUF:Q8_0", "Hello"],
                      ["small-GGUF:Q8_0", "-p", "Hello"], [self.model, "Hello"]):
            result = tyto("run", *words, *flags)
            self.assertEqual((result.returncode, result.stdout), (0, told.stdout), (words, result.stderr))
            self.assertNotIn("no model has that name", result.stderr)
        self.assertEqual(tyto("run", "tiny:1b", *flags, text="Hello\n").stdout, told.stdout)
        self.assertEqual(tyto("run", "tiny:1b", "-", *flags, text="Hello\n").stdout, told.stdout)
        self.assertEqual(tyto("run", "tiny:1b", *flags, "-f", "-", text="Hello\n").stdout, told.stdout)
        self.assertEqual(tyto("profile", "tiny:1b", "Hello", *flags).stdout.split("\n\n")[0], told.stdout.rstrip("\n"))
        self.check_error(tyto("run", "tiny:1b", text=""), 2, "no prompt")

    def test_words_that_are_no_model(self):
        told = tyto("run", "hello", "-n", "4")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("prompt 'hello' to owlet (no model has that name)\n", told.stderr)
        for text in ("Hello you", ""):
            self.assertNotIn("no model has that name", tyto("run", text, "-n", "4").stderr)
        self.assertNotIn("no model", tyto("run", "-m", "tiny:1b", "tiny:3b", "-n", "4").stderr)
        self.check_error(tyto("run", "llama3.2:1b"), 1, "llama3.2:1b: no such model here (",
                         "to download it: tyto pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M; as a prompt: tyto run -p 'llama3.2:1b')")
        self.check_error(tyto("run", "org/other", "hi"), 1, "org/other: no such model here (",
                         "to download it: tyto pull org/other)")
        self.check_error(tyto("run", "absent.gguf", "hi"), 1, "absent.gguf: no such model here")
        self.check_error(tyto("run", "tell", "me", "a", "joke"), 2,
                         "tyto run takes one prompt; put it in quotes: tyto run 'tell me a joke'")
        self.check_error(tyto("run", "tiny:1b", "tell", "me"), 2, "put it in quotes: tyto run tiny:1b 'tell me'")

    def test_short_names_of_models(self):
        flags = ["-n", "2", "--temp", "0"]
        self.addCleanup(shutil.rmtree, self.ollama / "manifests/registry.ollama.ai/library/llama3.2", ignore_errors=True)
        self.add_ollama("registry.ollama.ai/library/llama3.2/1b", self.model)
        result = tyto("run", "llama3.2", "hi", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.splitlines()[0], "llama3.2 is llama3.2:1b (Ollama)")
        self.assertEqual(result.stdout, tyto("run", "-m", "ollama:llama3.2:1b", "hi", *flags).stdout)
        self.assertNotIn("(Ollama)", tyto("run", "llama3.2:1b", "hi", *flags).stderr)
        self.add_ollama("registry.ollama.ai/library/llama3.2/3b", self.model)
        self.check_error(tyto("run", "llama3.2", *flags), 2, "llama3.2: 2 models have this name (name one of ",
                         "; as a prompt: tyto run -p 'llama3.2')")
        self.check_error(tyto("run", "gemma3", "hi"), 1, "gemma3: no such model here (to download it: tyto pull "
                         "bartowski/google_gemma-3-4b-it-GGUF:Q4_K_M)")
        self.check_error(tyto("run", "-m", "gemma3", "hi"), 1, "to download it: tyto pull bartowski/google_gemma-3-4b-it")
        self.check_error(tyto("run", "gemma3"), 1, "gemma3: no such model here", "; as a prompt: tyto run -p 'gemma3')")

    def test_commands_whose_only_word_is_a_model(self):
        for command in (["inspect"], ["perplexity", "-f", __file__], ["plan", "--machine", "strix"],
                        ["bench", "-p", "4", "-n", "2", "-r", "1"]):
            result = tyto(command[0], "tiny:1b", *command[1:])
            self.assertEqual(result.returncode, 0, (command, result.stderr))
            self.check_error(tyto(command[0], "tiny:3b", *command[1:]), 1, "tiny:3b: no such model here")
        self.check_error(tyto("inspect", "tiny:1b", "-m", "tiny:1b"), 2, "MODEL and --model exclude each other")

    def test_a_chat_with_the_model_that_is_named(self):
        self.assertEqual(tyto("chat", "owlet", "-n", "2", text="/exit\n").returncode, 0)
        self.check_error(tyto("chat", "tiny:3b"), 1, "tiny:3b: no such model here")
        with Session("run", "owlet", "-n", "2") as session:
            session.prompt()
            session.type("/exit\r")
            self.assertEqual(session.end(), 0)
        with Session("run", "owlet", "--receipt", self.work / "r.json") as session:
            session.expect("--receipt: has no effect together with a chat")
            self.assertEqual(session.end(), 2)

    def test_shells_complete_models_at_the_first_word(self):
        script = tyto("completions", "bash").stdout
        for command in ("run", "chat", "serve", "inspect", "profile"):
            begin = script.index(f"    '{command}')\n")
            self.assertIn("place='@model'", script[begin:script.index("case $2 in", begin)], command)

    def test_models_to_serve(self):
        for words in (["nothere"], ["-m", "nothere"]):
            self.check_error(tyto("serve", "--port", "0", *words), 1, "nothere: no such model here")
        broken = self.work / "broken.gguf"
        broken.write_bytes(self.model.read_bytes()[:1000])
        self.check_error(tyto("serve", "--port", "0", broken), 1, "broken.gguf")
        config = self.work / "config.toml"
        config.write_text('[serve]\nmodel = ["nothere"]\n')  # what the command line says counts
        process = subprocess.Popen([TYTO, "serve", "--config", config, "--port", "0", "tiny:1b", "mine=small-GGUF:Q8_0"],
                                   stderr=subprocess.PIPE, text=True)
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGHUP)
        lines.append(process.stderr.readline())
        process.terminate()
        process.communicate(timeout=60)
        self.assertIn("ready", lines[1])
        self.assertIn("tiny:1b, mine", lines[1])
        self.assertIn("changed: nothing", lines[2])


if __name__ == "__main__":
    main()
