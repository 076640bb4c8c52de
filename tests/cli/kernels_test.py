#!/usr/bin/env python3
"""tyto kernels."""
import json
import tempfile
from pathlib import Path

from harness import OWLET, CliTest, main, tyto
from npu_images import elf, stream, xclbin

SQUARE, KV, HIDDEN = 2048 * 2048 * 2, 2048 * 512 * 2, 2048 * 8192 * 2  # bytes of Llama-3.2-1B's arguments


class Kernels(CliTest):
    """No real images here: their structure is true, the code in them made up."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(dir=self.work))
        self.environment = {"XDG_CACHE_HOME": str(self.root / "cache")}
        self.store = self.root / "cache" / "tyto" / "kernels"
        self.build = self.root / "llama32_1b"
        self.cache = self.build / "build_peano" / "prefill_kernel_cache"
        self.cache.mkdir(parents=True)
        self.write_cache({"flash_attn": self.flash_attn(), "o_ffn": self.o_ffn()})

    @staticmethod
    def flash_attn(wide=1, **changes):
        return elf("attention_bf16", 4, [(0, 0, SQUARE * wide), (1, 0, KV), (2, 0, KV), (3, 0, SQUARE * wide)],
                   **changes)

    @staticmethod
    def o_ffn(**changes):
        return elf("o_ffn", changes.pop("arguments", 19), [(0, 0, SQUARE), (7, 0, HIDDEN)], **changes)

    def write_cache(self, images):
        entries = {"flash_attn": "main:attention_bf16", "o_ffn": "main:o_ffn"}
        for name, image in images.items():
            (self.cache / f"{name}.elf").write_bytes(image)
        (self.cache / "manifest.json").write_text(json.dumps({
            "_toolchain": {"llvm-aie": "21.0"},
            "entries": {name: {"output_binary": f"cache/{name}.elf", "kernel": entries[name], "insts": None}
                        for name in images}}))

    def kernels(self, *args):
        return tyto("kernels", *args, environment=self.environment)

    def test_help_says_that_nothing_is_shipped_and_how_to_build(self):
        self.assertIn("Tyto ships no kernel images", self.kernels("--help").stdout)
        for arguments in (["--help-all"], ["import", "--help-all"]):
            text = self.kernels(*arguments).stdout
            self.assertIn("MLIR-AIR is at github.com/Xilinx/mlir-air", text)
            self.assertIn("make compile", text)
            self.assertIn("Example", text)

    def test_bad_usage(self):
        self.check_error(self.kernels(), 2)
        self.check_error(self.kernels("import"), 2)
        self.check_error(self.kernels("import", self.build, "--shape", "huge"), 2, "huge")
        self.check_error(self.kernels("rm"), 2, "--all")
        self.check_error(self.kernels("rm", "x", "--all"), 2, "--all")
        self.check_error(self.kernels("rm", "x"), 1, "no such kernel")

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
        self.assertEqual((row["arguments"], row["launches"], row["columns"]), (19, 12, 8))
        self.assertEqual(row["run_bytes"], 32768)
        self.assertEqual(row["dims"]["seq"], 2048)
        self.assertEqual(Path(row["images"][0]["file"]).read_bytes(), self.o_ffn())
        self.assertIn("2 unchanged", self.kernels("check").stdout)
        self.assertIn("2 hashed", self.kernels("check", "--full").stdout)
        row = json.loads(self.kernels("check", "--full", "--json").stdout)
        self.assertEqual((row["images"], row["hashed"], row["problems"]), (2, 2, []))
        self.assertEqual(self.kernels("rm", "llama-3.2-1b/o_ffn").returncode, 0)
        self.assertNotIn("o_ffn", self.kernels("list").stdout)
        self.assertIn("deleted 1 image", self.kernels("rm", "--all").stderr)
        self.assertEqual(json.loads(self.kernels("list", "--json").stdout), [])

    def test_describe_says_of_which_model_and_for_what_each_kernel_is(self):
        text = self.kernels("describe", "--shape", "LLAMA-3.2-1b").stdout
        self.assertIn("Kernels of llama-3.2-1b, for prompts of 2048 rows", text)
        self.assertIn("fused_decode (MLIR_AIE): a whole decoded token, 23 launches", text)
        self.assertRegex(text, r"flash_attn \(.*\): for prompts, in every layer, 1 launch\n")

    def test_compiling_says_what_it_did_and_a_second_import_is_noticed(self):
        images = self.root / "twice"
        compiled = tyto("compile", "--model", OWLET, "-o", images, environment=self.environment)
        self.assertRegex(compiled.stderr, r"compiled \d+ kernels of owlet for the virtual NPU into .*`tyto kernels rm --all` removes them")
        self.assertRegex(compiled.stdout, r" 1 launch\n")
        again = self.kernels("import", images)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr, r"note: \d+ kernels of these were in the store already under another name \(\S+ as owlet@vnpu/")

    def test_one_bad_image_does_not_lose_the_rest(self):
        self.check_error(self.kernels("import", self.work), 1, "no kernels")
        self.assertFalse(self.store.exists())
        (self.cache / "o_ffn.elf").write_bytes(self.o_ffn(os_abi=0))
        result = self.kernels("import", self.build)
        self.assertEqual(result.returncode, 1)
        self.assertIn("llama-3.2-1b/flash_attn", result.stdout)
        self.assertNotIn("o_ffn", result.stdout)
        self.assertRegex(result.stderr, r"refused o_ffn: .*o_ffn\.elf.*another platform")
        self.assertIn("1 kernel refused, 1 imported", result.stderr)
        self.assertIn("llama-3.2-1b/flash_attn", self.kernels("list").stdout)

    def test_folders_of_other_models_are_refused_with_both_numbers(self):
        self.write_cache({"o_ffn": self.o_ffn(arguments=15)})
        self.check_error(self.kernels("import", self.build, "--shape", "llama-3.2-1b"), 1,
                         "takes 15 arguments, llama-3.2-1b's o_ffn has 19")
        self.write_cache({"flash_attn": self.flash_attn(wide=2)})
        self.check_error(self.kernels("import", self.build, "--shape", "llama-3.2-1b"), 1,
                         f"reaches byte {2 * SQUARE} of argument 0 (q), which has {SQUARE} bytes for llama-3.2-1b")
        self.check_error(self.kernels("import", self.build), 1, "fits no model", "--shape")
        self.assertFalse(self.store.exists())

    def test_an_argument_that_is_not_touched_to_its_end_is_noted(self):
        self.write_cache({"flash_attn": self.flash_attn()})
        result = self.kernels("import", self.build, "--shape", "qwen3-0.6b")  # its keys are twice as wide
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, f"note: .*reaches byte {KV} of argument 1 .*, which has {2 * KV} bytes for qwen3-0.6b")

    def test_the_shipped_models_images_are_not_taken_for_another_models(self):
        images = self.root / "images"
        compiled = tyto("compile", "--model", OWLET, "-o", images, environment=self.environment)
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        self.check_error(self.kernels("import", images, "--shape", "llama-3.2-1b"), 1, "made for another model",
                         "emb ", " and not 2048")
        self.assertNotIn("llama-3.2-1b", self.kernels("list").stdout)
        self.assertEqual(self.kernels("rm", "--all").returncode, 0)
        result = self.kernels("import", images)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("llama-3.2-1b", result.stdout)
        self.assertEqual(self.kernels("check", "--full").returncode, 0)
        # As if an older version had recorded them for it.
        manifest = self.store / "manifest.json"
        record = json.loads(manifest.read_text())
        for entry in record["entries"]:
            entry["dims"].update(emb=2048, hidden=8192)
        manifest.write_text(json.dumps(record))
        for arguments in (["check"], ["check", "--full"]):
            checked = self.kernels(*arguments)
            self.assertEqual(checked.returncode, 1)
            self.assertIn("stale", checked.stdout)
            self.assertIn("and not 2048", checked.stdout)

    def test_int8_gemms_of_the_whole_array_example(self):
        build = self.root / "whole_array" / "build"
        build.mkdir(parents=True)
        suffix = "128x2048x2048_32x64x64_8c"
        parts = [(0, 0, 128 * 2048), (1, 64 * 2048, 1984 * 2048), (2, 256, 128 * 2048 * 4 - 256)]
        (build / f"final_{suffix}.xclbin").write_bytes(xclbin())
        (build / f"insts_{suffix}.txt").write_bytes(stream(parts))
        result = self.kernels("import", build.parent)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("int8/gemm_k2048_m128", result.stdout)
        for changes, words in (({"columns": 4}, "compiled for 8 columns, and final_"), ({"kernel": "DPU:inst"}, "has the kernels DPU"),
                               ({"buffers": 2}, "connects 3 arguments to memory and not argument 5")):
            (build / f"final_{suffix}.xclbin").write_bytes(xclbin(**changes))
            self.check_error(self.kernels("import", build), 1, words)
        parts[1] = (1, 64, 2048 * 2048 - 64)  # B as rows, without b_col_maj=1
        (build / f"insts_{suffix}.txt").write_bytes(stream(parts))
        self.check_error(self.kernels("import", build), 1, "b_col_maj=1")

    def test_check_names_a_damaged_image(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        image = next(path for path in (self.store / "images").iterdir() if path.read_bytes() == self.o_ffn())
        image.write_bytes(self.o_ffn()[:-1])
        result = self.kernels("check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("truncated: llama-3.2-1b/o_ffn", result.stdout)
        problem, = json.loads(self.kernels("check", "--json").stdout)["problems"]
        self.assertEqual((problem["fault"], problem["kernel"]), ("truncated", "llama-3.2-1b/o_ffn"))
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
