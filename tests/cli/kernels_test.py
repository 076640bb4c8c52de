#!/usr/bin/env python3
"""tyto kernels."""
import json
import struct
import tempfile
from pathlib import Path

from harness import CliTest, main, tyto


class Kernels(CliTest):
    """No real images here: headers are true, bodies are made up."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(dir=self.work))
        self.environment = {"XDG_CACHE_HOME": str(self.root / "cache")}
        self.store = self.root / "cache" / "tyto" / "kernels"
        self.build = self.root / "llama32_1b"
        self.cache = self.build / "build_peano" / "prefill_kernel_cache"
        self.cache.mkdir(parents=True)
        entries = {"flash_attn": "main:attention_bf16", "o_ffn": "main:o_ffn"}
        for number, name in enumerate(entries):
            (self.cache / f"{name}.elf").write_bytes(self.elf(number))
        (self.cache / "manifest.json").write_text(json.dumps({
            "_toolchain": {"llvm-aie": "21.0"},
            "entries": {name: {"output_binary": f"cache/{name}.elf", "kernel": entry, "insts": None}
                        for name, entry in entries.items()}}))

    @staticmethod
    def elf(number, os_abi=69):
        header = b"\x7fELF" + bytes([2, 1, 1, os_abi]) + bytes(8)
        header += struct.pack("<HHIQQQIHHHHHH", 1, 69, 1, 0, 0, 64, 0, 64, 0, 0, 64, 1, 0)
        return header + bytes(64) + bytes([number]) * 100

    def kernels(self, *args):
        return tyto("kernels", *args, environment=self.environment)

    def test_help_says_that_nothing_is_shipped_and_how_to_build(self):
        for arguments in (["--help"], ["import", "--help"]):
            text = self.kernels(*arguments).stdout
            self.assertIn("Tyto ships no kernels", text)
            self.assertIn("make compile", text)
            self.assertIn("Example", text)

    def test_bad_usage(self):
        self.check_error(self.kernels(), 2)
        self.check_error(self.kernels("import"), 2)
        self.check_error(self.kernels("import", self.build, "--shape", "huge"), 2, "huge")
        self.check_error(self.kernels("import", self.build, "--shape", "qwen3-0.6b"), 1, "QK norm")
        self.check_error(self.kernels("rm"), 2, "--all")
        self.check_error(self.kernels("rm", "x", "--all"), 2, "--all")
        self.check_error(self.kernels("rm", "x"), 2, "no such kernel")

    def test_an_empty_store(self):
        result = self.kernels("list")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertIn("no kernels", result.stderr)
        self.assertEqual(json.loads(self.kernels("list", "--json").stdout), [])
        self.assertEqual(self.kernels("check").returncode, 0)
        self.assertFalse(self.store.exists())

    def test_import_list_check_remove(self):
        result = self.kernels("import", self.build)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("llama-3.2-1b/o_ffn", result.stdout)
        self.assertIn("imported 2 kernels", result.stderr)
        self.assertIn("main:attention_bf16", self.kernels("list").stdout)
        rows = {row["name"]: row for row in json.loads(self.kernels("list", "--json").stdout)}
        row = rows["llama-3.2-1b/o_ffn"]
        self.assertEqual((row["arguments"], row["launches"], row["columns"]), (19, 12, None))
        self.assertEqual(row["dims"]["seq"], 2048)
        self.assertEqual(Path(row["images"][0]["file"]).read_bytes(), self.elf(1))
        self.assertIn("2 unchanged", self.kernels("check").stdout)
        self.assertIn("2 hashed", self.kernels("check", "--full").stdout)
        self.assertEqual(self.kernels("rm", "llama-3.2-1b/o_ffn").returncode, 0)
        self.assertNotIn("o_ffn", self.kernels("list").stdout)
        self.assertIn("deleted 1 image", self.kernels("rm", "--all").stderr)
        self.assertEqual(json.loads(self.kernels("list", "--json").stdout), [])

    def test_a_bad_folder_changes_nothing(self):
        self.check_error(self.kernels("import", self.work), 1, "no kernels")
        (self.cache / "o_ffn.elf").write_bytes(self.elf(1, os_abi=0))
        self.check_error(self.kernels("import", self.build), 1, "o_ffn.elf", "another platform")
        self.assertFalse(self.store.exists())

    def test_check_names_a_damaged_image(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        image = next(path for path in (self.store / "images").iterdir() if path.read_bytes() == self.elf(1))
        image.write_bytes(self.elf(1)[:-1])
        result = self.kernels("check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("truncated: llama-3.2-1b/o_ffn", result.stdout)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1)
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        self.assertEqual(self.kernels("check", "--full").returncode, 0)

    def test_names_in_a_manifest_are_not_obeyed(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        manifest = self.store / "manifest.json"
        manifest.write_text(manifest.read_text().replace("llama-3.2-1b/o_ffn", "o\\u001b[2J\\u009b\\u202e\\nffn"))
        listed = self.kernels("list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("o\\u001b[2J\\u009b\\u202e\\u000affn", listed.stdout)
        self.assertEqual(len(listed.stdout.splitlines()), 3)

    def test_a_damaged_manifest(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        (self.store / "manifest.json").write_text("{")
        self.check_error(self.kernels("list"), 1, "manifest.json", "tyto kernels import")
        self.assertEqual(len(list((self.store / "images").iterdir())), 2)


if __name__ == "__main__":
    main()
