#!/usr/bin/env python3
"""tyto inspect, eval, embed, quantize, synth and perplexity; flags of the cpu device."""
import json
import shutil
import struct
import urllib.request

from harness import FIXTURES, OWLET, CliTest, main, tyto
from serving import Serving


class Files(CliTest):
    def test_inspect(self):
        result = json.loads(tyto("inspect", "-m", self.model, "--json", "--tensors").stdout)
        self.assertEqual(result["architecture"], "llama")
        self.assertGreater(result["parameters"], 0)
        self.assertEqual(sum(t["bytes"] for t in result["tensors"]), result["weight_bytes"])
        self.assertIn("layers", tyto("inspect", "-m", self.model).stdout)

    def test_inspect_says_why_a_folder_does_not_run(self):
        folder = self.work / "without"
        shutil.copytree(FIXTURES / "llama3" / "model", folder)
        weights = folder / "model.safetensors"
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
        pointer = ["model.safetensors: is a git-LFS pointer", "git lfs pull"]
        for command in (["inspect"], ["run", "-p", "x"]):
            self.check_error(tyto(*command, "-m", folder), 1, *pointer)
        weights.rename(folder / "pytorch_model.bin")
        for command in (["inspect"], ["inspect", "--json"], ["run", "-p", "x"]):
            self.check_error(tyto(*command, "-m", folder), 1, "has neither model.safetensors", "pytorch_model.bin is not read")
        config = json.loads((folder / "config.json").read_text())
        for method in ("awq", "gptq", "bitsandbytes"):
            (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": method}}))
            shown = tyto("inspect", "-m", folder)
            self.assertEqual(shown.returncode, 1)
            self.assertIn(f"quantised checkpoints ({method})", shown.stdout)
            self.assertIn("get the model's GGUF", shown.stderr)
            self.assertNotIn("0.0 million", shown.stdout)
        # Older ones say it by the names of their tensors alone.
        (folder / "config.json").write_text(json.dumps(config))
        stored = (FIXTURES / "llama3" / "model" / "model.safetensors").read_bytes()
        header_end = 8 + int.from_bytes(stored[:8], "little")
        header = stored[8:header_end].replace(b"proj.weight", b"proj.qweight")
        self.assertIn(b"q_proj.qweight", header)
        weights.write_bytes(len(header).to_bytes(8, "little") + header + stored[header_end:])
        words = ["a quantised checkpoint", "proj.qweight", "get the model's GGUF"]
        self.check_error(tyto("run", "-p", "x", "-m", folder), 1, *words)
        shown = tyto("inspect", "-m", folder)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("quantised checkpoints (tensor ", shown.stdout)
        for word in words:
            self.assertIn(word, shown.stderr)

    def test_one_name_for_a_models_size_and_type_everywhere(self):
        """A mix is called what its file says, however few of its tensors have the type that it is named after."""
        for kind in ("q4_k_m", "bf16"):
            folder = self.work / kind
            folder.mkdir()
            path, receipt = folder / "m.gguf", self.work / f"{kind}.json"
            self.assertEqual(tyto("quantize", "-m", self.model, "--type", kind, "-o", path).returncode, 0)
            inspected = json.loads(tyto("inspect", "-m", path, "--json").stdout)
            self.assertEqual(inspected["type"], kind)
            self.assertRegex(inspected["size"], r"^[\d.]+[KMB]$")
            said = (inspected["size"], kind)
            listed = [row for row in json.loads(tyto("models", "--in", folder, "--json").stdout)
                      if row["path"] == str(path)]
            self.assertEqual([(row["size"], row["type"]) for row in listed], [said])
            bench = tyto("bench", "-m", path, "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "--no-ledger", "-o", "json")
            self.assertEqual(json.loads(bench.stdout)[0]["model_type"], f"llama {said[0]} {kind}", bench.stderr)
            planned = json.loads(tyto("plan", "-m", path, "--machine", "krackan", "--prompt-tokens", "4", "--json").stdout)
            self.assertEqual({row["file_type"] for row in planned}, {kind})
            ran = tyto("run", "-m", path, "-p", "x", "--raw", "-n", "1", "--receipt", receipt)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            model = json.loads(receipt.read_text())["model"]
            self.assertEqual((model["size"], model["type"]), said)
            server = Serving(models=(f"m={path}",))
            try:
                with urllib.request.urlopen(server.url + "/v1/models", timeout=60) as reply:
                    self.assertEqual(json.load(reply)["data"][0]["meta"]["weight_type"], kind)
                with urllib.request.urlopen(server.url + "/api/tags", timeout=60) as reply:
                    details = json.load(reply)["models"][0]["details"]
                self.assertEqual((details["parameter_size"], details["quantization_level"]), (said[0], kind.upper()))
            finally:
                self.assertEqual(server.stop(), 0)

    def test_eval_writes_every_position_and_the_reference_agrees(self):
        out, plain = self.work / "a.f32", self.work / "b.f32"
        tokens = ["--ids", "1,2,3,4,5"]
        self.assertEqual(tyto("eval", "-m", self.model, *tokens, "--logits", out).returncode, 0)
        self.assertEqual(tyto("eval", "-m", self.model, *tokens, "--logits", plain, "--reference").returncode, 0)
        vocab = json.loads(tyto("inspect", "-m", self.model, "--json").stdout)["vocab"]
        a, b = (struct.unpack(f"<{5 * vocab}f", path.read_bytes()) for path in (out, plain))
        worst = max(abs(x - y) for x, y in zip(a, b))
        self.assertLess(worst, 0.01 * max(map(abs, b)))

    def test_eval_that_fails_leaves_no_file(self):
        out = self.work / "never.f32"
        self.check_error(tyto("eval", "-m", self.model, "--ids", "1,99999999", "--logits", out), 1, "99999999")
        self.assertEqual(list(self.work.glob("never.f32*")), [])

    def test_embed_prints_a_vector_of_length_1_and_devices_agree(self):
        def embed(*flags, text="The owl hunts at night."):
            result = tyto("embed", "-m", OWLET, "-p", text, *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout), result.stderr

        on_cpu, stderr = embed()
        self.assertIn("executed on cpu", stderr)
        self.assertEqual(len(on_cpu), json.loads(tyto("inspect", "-m", OWLET, "--json").stdout)["emb"])
        self.assertAlmostEqual(sum(x * x for x in on_cpu), 1, places=5)
        for fusion in ("block", "token"):
            there, stderr = embed("--device", "vnpu", "--prompt-rows", "64", "--fusion", fusion)
            self.assertIn("vnpu", stderr)
            self.assertGreater(sum(a * b for a, b in zip(on_cpu, there)), 0.999)
        other, _ = embed(text="Taxes are due in April.")
        self.assertLess(sum(a * b for a, b in zip(on_cpu, other)), 0.99)
        self.check_error(tyto("embed", "-m", OWLET), 2, "no text")
        told = tyto("embed", "-m", OWLET, "-p", "owl").stdout
        self.assertEqual(tyto("embed", "-m", OWLET, "owl").stdout, told)
        self.assertEqual(tyto("embed", "-m", OWLET, text="owl").stdout, told)
        self.check_error(tyto("embed", "-m", OWLET, "-p", ""), 2, "tyto embed: the text is empty")
        self.check_error(tyto("embed", "-m", OWLET, "-p", "x", "--require", "npu"), 3, "npu")

    def test_quantize_and_synth(self):
        out = self.work / "q8.gguf"
        self.assertEqual(tyto("quantize", "-m", self.model, "--type", "q8_0", "-o", out).returncode, 0)
        self.assertIn("q8_0", tyto("inspect", "-m", out).stdout)
        self.assertEqual(tyto("run", "-m", out, "-p", "x", "--raw", "-n", "2").returncode, 0)
        self.check_error(tyto("quantize", "-m", self.model, "--type", "q8_0", "-o", self.model), 2, "is in use")
        self.check_error(tyto("quantize", "-m", self.model, "--type", "q3_z", "-o", out), 2, "q3_z")
        again = self.work / "again.gguf"
        tyto("synth", "--shape", "tiny", "-o", again)
        self.assertEqual(again.read_bytes(), self.model.read_bytes())

    def test_synth_folder_runs(self):
        folder = self.work / "folder"
        self.assertEqual(tyto("synth", "--shape", "tiny", "-o", folder).returncode, 0)
        self.assertEqual(tyto("run", "-m", folder, "-p", "x", "--raw", "-n", "2").returncode, 0)

    def test_cached_repo_id(self):
        cache = self.work / "hub"
        snapshot = cache / "models--org--name" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (cache / "models--org--name" / "refs").mkdir()
        (cache / "models--org--name" / "refs" / "main").write_text("abc")
        for path in (FIXTURES / "llama3" / "model").iterdir():
            (snapshot / path.name).write_bytes(path.read_bytes())
        result = tyto("inspect", "-m", "org/name", environment={"HF_HUB_CACHE": str(cache)})
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_perplexity(self):
        text = self.work / "text.txt"
        text.write_text("the owl sees in the dark. " * 40)
        result = tyto("perplexity", "-m", self.model, "-f", text, "--window", "64", "--stride", "32")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("perplexity ", result.stdout)
        self.check_error(tyto("perplexity", "-m", self.model, "-f", text, "--stride", "0"), 2, "stride")

    def test_instruction_sets_are_chosen_by_name(self):
        bench = ["bench", "-m", self.model, "-p", "4", "-n", "1", "-r", "1"]
        self.assertEqual(tyto(*bench, "--isa", "generic").returncode, 0)
        self.check_error(tyto(*bench, "--isa", "abacus"), 2, "abacus", "generic")
        for command in ["run", "eval", "perplexity"]:
            self.assertIn("--isa", tyto(command, "--help-all").stdout)

    def test_every_cache_type_runs_or_says_why_not(self):
        for kind in ["f16", "q8_0", "f32"]:
            result = tyto("bench", "-m", OWLET, "-p", "4", "-n", "1", "-r", "1", "--kv-type", kind)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.check_error(tyto("bench", "-m", OWLET, "--kv-type", "q3"), 2, "q3")


if __name__ == "__main__":
    main()
