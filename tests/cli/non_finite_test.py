#!/usr/bin/env python3
"""Models with a weight that is not a finite number: every command says which, and none launders it."""
import json
import struct

from harness import CliTest, main, tyto

# What makes a whole block, or a value, not a number: the exponent's 16 bits, and where they are in it.
NAN = {"f32": (2, 0x7fc0), "bf16": (0, 0x7fc0), "f16": (0, 0x7e00), "q8_0": (0, 0x7e00), "q4_0": (0, 0x7e00),
       "q4_k": (0, 0x7e00)}


class NonFinite(CliTest):
    def made(self, kind):
        whole = self.work / f"{kind}.gguf"
        if not whole.exists():
            self.assertEqual(tyto("synth", "--shape", "tiny", "--type", kind, "-o", whole).returncode, 0)
        return whole

    def spoiled(self, kind, name, value=None):
        """The model with 16 bits of the tensor's first value (or that many as f32) replaced."""
        whole = self.made(kind)
        content = bytearray(whole.read_bytes())
        tensors = json.loads(tyto("inspect", "-m", whole, "--json", "--tensors").stdout)["tensors"]
        at = len(content)  # the data section ends the file, each tensor padded to 32 bytes
        for tensor in reversed(tensors):
            at -= (tensor["bytes"] + 31) // 32 * 32
            if tensor["name"] == name:
                place, bits = NAN[tensor["type"]]
                if value is None:
                    content[at + place:at + place + 2] = struct.pack("<H", bits)
                else:
                    content[at:at + 4] = struct.pack("<f", value)
        damaged = self.work / "spoiled.gguf"
        damaged.write_bytes(content)
        return damaged

    def test_every_command_names_file_and_tensor(self):
        name = "blk.1.ffn_down.weight"
        model = self.spoiled("bf16", name)
        text = self.work / "text.txt"
        text.write_text("the owl sees in the dark. " * 4)
        logits = self.work / "logits.f32"
        prompt = ["-p", "x", "--raw", "-n", "2"]
        for command in [["run", *prompt], ["run", *prompt, "--device", "vnpu"],
                        ["run", *prompt, "--device", "vnpu", "--fusion", "op", "--weights", "int8"],
                        ["eval", "--ids", "1,2,3", "--logits", logits],
                        ["eval", "--ids", "1,2,3", "--logits", logits, "--reference"],
                        ["perplexity", "-f", text, "--window", "16", "--stride", "8"],
                        ["bench", "-p", "4", "-n", "1", "-r", "1", "--no-warmup"],
                        ["verify", "--device", "cpu"],
                        ["diagnose", "--device", "vnpu", "--prompt", "x"],
                        ["profile", *prompt]]:
            with self.subTest(command=command):
                result = tyto(*command, "-m", model)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(f"spoiled.gguf: tensor {name}: nan at row 0, column 0 cannot be a weight",
                              result.stderr.strip().splitlines()[-1])
                self.assertFalse(logits.exists())

    def test_chat_says_it_instead_of_an_answer(self):
        model = self.spoiled("bf16", "output_norm.weight")
        result = tyto("chat", "-m", model, "--chat-template", "chatml", "-n", "4", text="Hello\n/exit\n")
        self.assertIn("spoiled.gguf: tensor output_norm.weight: nan at row 0", result.stderr)
        self.assertNotIn("executed on", result.stderr)

    def test_every_type_is_looked_at(self):
        for kind in NAN:
            for name in ["blk.0.attn_q.weight", "blk.1.ffn_norm.weight"]:
                with self.subTest(kind=kind, name=name):
                    self.check_error(tyto("eval", "-m", self.spoiled(kind, name), "--ids", "1,2", "--logits",
                                          self.work / "never.f32"), 1, f"spoiled.gguf: tensor {name}: nan at row 0")

    def test_quantize_refuses_and_leaves_nothing(self):
        out = self.work / "out.gguf"
        for kind, wanted in [("f32", "q8_0"), ("bf16", "bf16"), ("f16", "q4_k_m"), ("q8_0", "q8_0"), ("q4_k", "f16")]:
            for name in ["blk.0.attn_q.weight", "output_norm.weight"]:
                with self.subTest(kind=kind, wanted=wanted, name=name):
                    result = tyto("quantize", "-m", self.spoiled(kind, name), "--type", wanted, "-o", out)
                    self.check_error(result, 1, f"spoiled.gguf: tensor {name}: nan at row 0, column 0")
                    self.assertEqual(list(self.work.glob("out.gguf*")), [])

    def test_quantize_refuses_what_the_type_cannot_hold(self):
        out = self.work / "out.gguf"
        name = "blk.0.attn_q.weight"
        for wanted, value in [("f16", -70000.0), ("bf16", 3.4e38), ("q8_0", 1e9)]:
            result = tyto("quantize", "-m", self.spoiled("f32", name, value), "--type", wanted, "-o", out)
            self.check_error(result, 1, f"tensor {name}: ", f"at row 0, column 0 does not fit into {wanted}")
            self.assertEqual(list(self.work.glob("out.gguf*")), [])
        fits = tyto("quantize", "-m", self.spoiled("f32", name, 65504.0), "--type", "f16", "-o", out)
        self.assertEqual(fits.returncode, 0, fits.stderr)


if __name__ == "__main__":
    main()
