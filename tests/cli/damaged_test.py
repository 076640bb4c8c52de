#!/usr/bin/env python3
"""Damaged and foreign models."""
import json
import struct

from harness import FIXTURES, CliTest, main, tyto


class Damaged(CliTest):
    """Truncated and corrupted files: a one-line error that names the file, exit 1, never a crash."""

    def test_every_truncation_of_a_gguf(self):
        whole = self.model.read_bytes()
        damaged = self.work / "damaged.gguf"
        for size in [0, 3, 4, 7, 8, 15, 23, 24, 100, 1000, len(whole) // 2, len(whole) - 1]:
            damaged.write_bytes(whole[:size])
            said = "the file is cut off: " if size else "the file is empty"
            for command in (["run", "-p", "x"], ["inspect"]):
                self.check_error(tyto(*command, "-m", damaged), 1, "damaged.gguf: " + said, "(download it again)")
        damaged.write_bytes(whole[:len(whole) // 2])
        unit, name = (1e6, "MB") if len(whole) >= 1e6 else (1e3, "kB")
        self.check_error(tyto("inspect", damaged), 1, f"{len(whole) // 2 / unit:.1f} of at least {len(whole) / unit:.1f} {name}")

    def test_what_is_no_model_is_not_counted(self):
        folder = self.work / "mixed"
        folder.mkdir()
        whole = self.model.read_bytes()
        for name, content in {"whole": whole, "cut": whole[:2000], "text": b"hello", "empty": b""}.items():
            (folder / f"{name}.gguf").write_bytes(content)
        nothing = {"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere", "OLLAMA_MODELS": "/nowhere"}
        table = tyto("models", "--in", folder, environment=nothing).stdout
        self.assertIn("2 models on this machine; 3 more are damaged, incomplete or not models", table)
        for reason in ("the file is cut off", "not a GGUF file", "the file is empty"):
            self.assertIn("no: " + reason, table)
        self.check_error(tyto("inspect", folder / "text.gguf"), 1, "not a GGUF file (a model is a GGUF file, or a folder")

    def test_corrupted_counts_in_a_gguf(self):
        damaged = self.work / "damaged.gguf"
        for offset in (8, 16):  # tensor count, metadata count
            for value in (2**63, 2**60, 2**32, 2**64 - 1):
                content = bytearray(self.model.read_bytes())
                content[offset:offset + 8] = struct.pack("<Q", value)
                damaged.write_bytes(content)
                self.check_error(tyto("inspect", "-m", damaged), 1, "damaged.gguf")

    def test_bytes_that_are_no_tensors(self):
        damaged = self.work / "damaged.gguf"
        damaged.write_bytes(self.model.read_bytes() + b"!" * 64)
        self.check_error(tyto("inspect", "-m", damaged), 1, "damaged.gguf", "after the last tensor", "download it again")

    def test_unsupported_architecture_is_named(self):
        damaged = self.work / "other.gguf"
        content = self.model.read_bytes()
        key = b"general.architecture"
        at = content.index(key) + len(key) + 4 + 8
        damaged.write_bytes(content[:at] + b"mamba" + content[at + 5:])
        self.check_error(tyto("run", "-m", damaged, "-p", "x"), 1, "mamba", "these are: llama, ")
        self.check_survey(damaged, "architecture mamba")

    def check_survey(self, path, missing):
        """What does not run is shown as far as it can be read, with what is missing and exit code 1."""
        result = tyto("inspect", "-m", path, "--tensors")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertIn("missing", result.stdout)
        shown = json.loads(tyto("inspect", "-m", path, "--tensors", "--json").stdout)
        self.assertFalse(shown["runs"])
        self.assertTrue(any(missing in each for each in shown["missing"]), shown["missing"])
        self.assertGreater(len(shown["metadata"]), 2)
        self.assertGreater(sum(tensor["bytes"] for tensor in shown["tensors"]), 0)

    def test_what_a_checkpoint_lacks_is_listed(self):
        folder = self.work / "unsupported"
        folder.mkdir(exist_ok=True)
        for path in (FIXTURES / "llama3" / "model").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        config = json.loads((folder / "config.json").read_text())
        for change, missing in (({"model_type": "mamba"}, "architecture mamba"),
                                ({"quantization_config": {"quant_method": "gptq"}}, "quantised checkpoints (gptq)"),
                                ({"rope_parameters": {"rope_type": "proportional", "factor": 2.0}}, "proportional")):
            (folder / "config.json").write_text(json.dumps({**config, **change}))
            self.check_survey(folder, missing)

    def test_what_a_gguf_lacks_is_listed(self):
        content = bytearray(self.model.read_bytes())
        at = content.index(b"blk.0.attn_k.weight") + len(b"blk.0.attn_k.weight") + 4 + 2 * 8
        content[at:at + 4] = (35).to_bytes(4, "little")
        path = self.work / "tq2.gguf"
        path.write_bytes(content)
        self.check_survey(path, "weights that are tq2_0, as 1 tensor is")

    def test_checkpoint_folders(self):
        source = FIXTURES / "llama3" / "model"
        folder = self.work / "checkpoint"
        folder.mkdir(exist_ok=True)
        files = {path.name: path.read_bytes() for path in source.iterdir()}

        def damage(name, content):
            for other, original in files.items():
                (folder / other).write_bytes(original)
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content)
            return tyto("run", "-m", folder, "-p", "x", "-n", "1")

        config = json.loads(files["config.json"])
        self.check_error(damage("config.json", None), 1, "config.json")
        self.check_error(damage("config.json", b"{"), 1, "config.json")
        self.check_error(damage("config.json", b"[" * 100000), 1, "config.json")
        self.check_error(damage("config.json", json.dumps({**config, "model_type": "rwkv"}).encode()), 1, "rwkv")
        self.check_error(damage("config.json", json.dumps({**config, "hidden_size": 2**60}).encode()), 1,
                         "hidden_size")
        self.check_error(damage("config.json", json.dumps({**config, "num_hidden_layers": 3}).encode()), 1,
                         "layers.2")
        for field, value in [("rope_theta", float("nan")), ("rms_norm_eps", float("inf")), ("rope_theta", 1e-42),
                             ("rope_scaling", 5)]:
            self.check_error(damage("config.json", json.dumps({**config, field: value}).encode()), 1,
                             f"config.json: {field}: ")
        self.check_error(damage("generation_config.json", b'{"temperature": NaN}'), 1,
                         "generation_config.json: temperature: ")
        (folder / "generation_config.json").unlink()
        weights = files["model.safetensors"]
        self.check_error(damage("model.safetensors", weights + b"!"), 1, "model.safetensors", "1 bytes after")
        self.check_error(damage("model.safetensors", None), 1, "safetensors")
        for size in (3, 8, 100, len(weights) // 2, len(weights) - 10):
            self.check_error(damage("model.safetensors", weights[:size]), 1, "model.safetensors: the file is cut off: ",
                             "(download it again)")
        self.check_error(damage("model.safetensors", b""), 1, "model.safetensors: the file is empty")
        self.check_error(damage("model.safetensors", struct.pack("<Q", 2**60) + weights[8:]), 1, "model.safetensors")
        self.check_error(damage("model.safetensors", weights.replace(b"BF16", b"F8_X", 1)), 1, "F8_X")
        self.check_error(damage("tokenizer.json", b"{}"), 1, "tokenizer.json")
        self.check_error(damage("tokenizer.json", files["tokenizer.json"][:500]), 1, "tokenizer.json")


if __name__ == "__main__":
    main()
