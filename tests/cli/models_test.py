#!/usr/bin/env python3
"""tyto models, and the names that -m takes, in a home with the stores of other tools."""
import hashlib
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

from harness import CACHE, TYTO, CliTest, main, tyto
from serving import Serving

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
        self.check_error(tyto("run", "-m", "tiny-GGUF:Q6_K", "-p", "x"), 1, "most like it here: hf:org/tiny-GGUF:Q4_K_M",
                         "`tyto models` lists all")
        self.check_error(tyto("run", "-m", "org/other", "-p", "x"), 1, "`tyto pull org/other` downloads it")
        self.check_error(tyto("run", "-m", "ollama:small", "-p", "x"), 1, "ollama:small: is not in Ollama's store")
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
        self.assertIn("`tyto pull ORG/REPO` downloads one", result.stdout)

    def test_served_ids_are_names_without_their_store(self):
        server = Serving(models=("ollama:tiny:1b", "hf:org/tiny-GGUF:Q8_0", "mine=lmstudio:pub/small-GGUF"))
        try:
            with urllib.request.urlopen(server.url + "/v1/models", timeout=60) as response:
                ids = [model["id"] for model in json.load(response)["data"]]
        finally:
            server.stop()
        self.assertEqual(ids, ["tiny:1b", "tiny-GGUF:Q8_0", "mine"])


if __name__ == "__main__":
    main()
