#!/usr/bin/env python3
"""--lora: what adapters change, what receipts and inspect say of them, what is refused."""
import json
import struct

from harness import CliTest, main, tyto
from lora_files import gguf_tensors, pairs_for, write_gguf, write_peft


class Lora(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shown = json.loads(tyto("inspect", "-m", cls.model, "--json", "--tensors").stdout)
        cls.pairs = pairs_for(shown["tensors"], 4)
        cls.adapter = cls.work / "adapter.gguf"
        write_gguf(cls.adapter, gguf_tensors(cls.pairs))

    def logits(self, *flags):
        out = self.work / "logits.f32"
        result = tyto("eval", "-m", self.model, "--ids", "1,2,3,4,5", "--logits", out, "--force", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        data = out.read_bytes()
        return struct.unpack(f"<{len(data) // 4}f", data)

    def apart(self, a, b):
        return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))

    def test_an_adapter_changes_what_is_computed_and_the_reference_agrees(self):
        plain, adapted = self.logits(), self.logits("--lora", self.adapter)
        self.assertGreater(self.apart(adapted, plain), 0.01)
        self.assertLess(self.apart(adapted, self.logits("--lora", self.adapter, "--reference")), 0.01)
        self.assertLess(self.apart(self.logits("--lora", f"{self.adapter}=0"), plain), 1e-6)
        # Two of half the strength are one.
        halves = self.logits("--lora", f"{self.adapter}=0.5", "--lora", f"{self.adapter}=0.5")
        self.assertLess(self.apart(halves, adapted), 1e-4)
        self.assertLess(self.apart(self.logits("--lora", self.adapter, "--device", "vnpu"), adapted), 0.2)

    def test_a_folder_of_peft_is_the_same_adapter(self):
        names = {"attn_v": "self_attn.v_proj", "ffn_down": "mlp.down_proj"}
        some = {name: pair for name, pair in self.pairs.items() if name.split(".")[2] in names}
        write_gguf(self.work / "some.gguf", gguf_tensors(some))
        write_peft(self.work / "peft", {
            f"model.layers.{name.split('.')[1]}.{names[name.split('.')[2]]}": pair for name, pair in some.items()}, 4,
            target_modules=["v_proj", "down_proj"])
        self.assertEqual(self.logits("--lora", self.work / "some.gguf"), self.logits("--lora", self.work / "peft"))

    def test_receipt_and_inspect_name_it(self):
        receipts = [self.work / "with.json", self.work / "without.json"]
        for receipt, flags in zip(receipts, (["--lora", f"{self.adapter}=0.5"], [])):
            result = tyto("run", "-m", self.model, "-p", "x", "--raw", "-n", "2", "--receipt", receipt, *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
        adapted, plain = (json.loads(receipt.read_text()) for receipt in receipts)
        self.assertNotEqual(adapted["hashes"]["weights"], plain["hashes"]["weights"])
        self.assertNotIn("adapters", plain["model"])
        [named] = adapted["model"]["adapters"]
        self.assertEqual((named["path"], named["scale"], len(named["hash"])), (str(self.adapter), 0.5, 32))
        shown = json.loads(tyto("inspect", "-m", self.model, "--lora", self.adapter, "--json").stdout)
        self.assertEqual(shown["adapters"][0]["hash"], named["hash"])
        self.assertIn("LoRA adapters", shown["differences_from_llama"])
        self.assertIn("matrices of rank 4", tyto("inspect", "-m", self.model, "--lora", self.adapter).stdout)

    def test_what_does_not_fit_is_refused(self):
        run = lambda *flags: tyto("run", "-m", self.model, "-p", "x", "--raw", "-n", "1", *flags)
        self.check_error(run("--lora", "none.gguf"), 1, "none.gguf: no such adapter")
        self.check_error(run("--lora", f"{self.adapter}=much"), 2, "expected FILE or FILE=SCALE")
        self.check_error(run("--lora", self.model), 1, "is not an adapter (general.type)", "give models with -m")
        write_gguf(self.work / "qwen.gguf", gguf_tensors(self.pairs), "qwen2")
        self.check_error(run("--lora", self.work / "qwen.gguf"), 1, "qwen2, and the model is llama")
        self.check_error(tyto("run", "-m", self.adapter, "-p", "x"), 1, "is a LoRA adapter, not a model", "--lora")
        self.check_error(tyto("serve", "-m", f"a={self.model}", "-m", f"b={self.model}", "--lora", self.adapter), 2,
                         "for which of 2 models?")


if __name__ == "__main__":
    main()
