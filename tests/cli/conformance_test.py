#!/usr/bin/env python3
"""tyto kernels describe beside what tools/air_conformance has read from MLIR-AIR's sources."""
import copy
import json
import subprocess
import sys

from harness import ROOT, TYTO, CliTest, main, tyto

TOOL = ROOT / "tools" / "air_conformance"
sys.path.insert(0, str(ROOT / "tools"))
from air_facts import DECODE_NUMBERS  # noqa: E402
TRANSCRIPT = ROOT / "tests" / "data" / "air_conformance" / "mlir-air.json"
# Built by MLIR-AIR, and not described by Tyto: other arithmetic, or no Llama family.
NOT_DESCRIBED = {"llama32_1b_int4", "gemma3_4b_q4nx", "phi4_mini_q4nx", "qwen25_3b_q4"}

# A model in the manner of MLIR-AIR's examples: the tool must find its arguments by evaluating it.
BUILDERS = {
    "shared/infra/stitching.py": """
class FuncArg:
    name: str
    type: str
class KernelSlice:
    ir: str
    prefix: str
    arg_map: dict
""",
    "toy/toy_weights.py": """
class LlamaConfig:
    n_layers: int = 2
    emb_dim: int = 64
    n_heads: int = 2
    n_kv_heads: int = 1
    head_dim: int = 32
    hidden_dim: int = 128
    vocab_size: int = 512
""",
    "../matrix_multiplication/bf16/run.py": """
def build(width):
    return [row for row in compiled(width)]
""",
    "toy/toy_prefill.py": """
import compiler
from matrix_multiplication.bf16.run import build
from shared.infra.stitching import stitch_elf, FuncArg, KernelSlice
def compile_all_kernels(cache, config, seq_len, cpu_attn=True):
    args = [FuncArg(f"%arg{i}", f"memref<{seq_len}x{w}xbf16>") for i, w in enumerate((config.emb_dim, config.hidden_dim))]
    args.append(FuncArg("%arg2", f"memref<{config.emb_dim * 2}xf32>"))
    ir = str(build(config.emb_dim))
    module = stitch_elf("toy", args[:2], [KernelSlice(ir, "a", {0: 0, 1: 2}), KernelSlice(ir, "b", {0: 1})],
                        scratch_args=args[2:])
    cache.compile_and_cache("toy", module, {"instance_name": "toy_main"})
    if compiler.has_more():
        cache.compile_and_cache("never", module, {})
""",
    "toy/toy_decode.py": """
def compile_decode_kernels(cache, config):
    raise ValueError("too small")
"""}


class Conformance(CliTest):
    def compare(self, facts=None):
        path = TRANSCRIPT
        if facts is not None:
            path = self.work / "transcript.json"
            path.write_text(json.dumps(facts))
        done = subprocess.run([sys.executable, TOOL, "--transcript", path, "--tyto", TYTO], capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stdout + done.stderr

    def test_every_program_is_as_mlir_air_builds_it(self):
        code, text = self.compare()
        self.assertEqual(code, 0, text)
        self.assertIn("e972f2942d41123f161276b27f991ef10da2a2e6", text)
        left_out = {line.split()[0] for line in text.splitlines() if "not described by Tyto" in line}
        self.assertEqual(left_out, NOT_DESCRIBED)

    def test_it_notices_what_differs(self):
        facts = json.loads(TRANSCRIPT.read_text())
        for change, words in (
                (lambda p: p["arguments"].insert(0, p["arguments"].pop()), "argument 0"),
                (lambda p: p["arguments"].pop(), "arguments, Tyto has"),
                (lambda p: p.update(entry="main:other"), "entry is main:other"),
                (lambda p: p.update(launches=p["launches"] + 1), "launches is"),
                (lambda p: p.update(static_input_indices=[0]), "static_input_indices"),
                (lambda p: p.update(name="other"), "Tyto has no such program")):
            changed = copy.deepcopy(facts)
            change(next(p for p in changed["models"]["llama32_1b"]["programs"] if p["name"] == "o_ffn"))
            code, text = self.compare(changed)
            self.assertEqual(code, 1, words)
            self.assertIn(words, text)
        for key in ("head_chunk_rows", "kv_region_elements", "layer_elements"):
            changed = copy.deepcopy(facts)
            changed["decodes"]["llama31_8b_q4nx"]["numbers"][key] += 1
            code, text = self.compare(changed)
            self.assertEqual(code, 1, key)
            self.assertIn(key, text)

        facts["files"]["flags"] = False
        code, text = self.compare(facts)
        self.assertEqual(code, 1)
        self.assertIn(".decode_flags", text)

    def test_builders_are_evaluated_and_not_run(self):
        checkout = self.work / "checkout"
        for name, text in BUILDERS.items():
            path = checkout / "programming_examples" / "llms" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (checkout / "programming_examples" / "fused_decode").mkdir()
        (checkout / "programming_examples" / "fused_decode" / "Makefile").write_text("")
        transcript = self.work / "toy.json"
        done = subprocess.run([sys.executable, TOOL, checkout, "--tyto", TYTO, "--write-transcript", transcript],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not described by Tyto", done.stdout)
        toy = json.loads(transcript.read_text())["models"]["toy"]
        self.assertEqual(toy["programs"], [{
            "name": "toy", "phase": "prompt", "entry": "main:toy_main", "launches": 3, "dead": [],
            "arguments": ["bf16 2048x64", "bf16 2048x128", "f32 128"]}])
        self.assertEqual(len(toy["not_read"]), 2, toy["not_read"])
        self.assertIn("toy_prefill.py:12: undecided", toy["not_read"][0])
        self.assertIn("toy_decode.py:3: the builder refuses these dimensions", toy["not_read"][1])

    def decode_of(self, name, text):
        """What the tool says of a checkout whose only model has this generator."""
        checkout = self.work / name
        folder = checkout / "programming_examples" / "llms" / "llama32_1b_q4nx"
        folder.mkdir(parents=True)
        (folder / "Makefile").write_text("DECODE_MODEL=llama-3.2-1b VOCAB_CHUNK_I2=18\n")
        fused = folder.parent.parent / "fused_decode"
        fused.mkdir()
        (fused / "Makefile").write_text("stamps: .decode_windows .decode_flags W_DUAL_CHAN=1\n")
        (fused / "fused_decode.py").write_text(text)
        done = subprocess.run([sys.executable, TOOL, checkout, "--tyto", TYTO], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def test_the_generator_is_read_in_both_forms(self):
        numbers = json.loads(TRANSCRIPT.read_text())["decodes"]["llama32_1b_q4nx"]["numbers"]
        names = {ours: theirs for theirs, ours in DECODE_NUMBERS.items()}
        constants = "".join(f"{names[ours]} = {value}\n" for ours, value in numbers.items() if ours in names)
        august = "from air.dialects.air import launch\n" + constants + "@launch\ndef body():\n    pass\n"
        september = ("from air import api as air\nfrom air.api import ops\nx = air.tensor([2048], air.bf16)\n" + constants +
                     "with air.launch(name='q4nx') as launch:\n    @launch.body\n    def _():\n        ops.maximum(x, 0)\n")
        for name, text in (("august", august), ("september", september)):
            _, said = self.decode_of(name, text)
            self.assertIn(f"same ({len(numbers)} numbers)", said)
            self.assertNotIn("fused_decode.py", said)
        for name, text in (("computed", september.replace("\nK = 2048\n", "\nK = ops.width(x)\n")),
                           ("absent", september.replace("\nK = 2048\n", "\n"))):
            code, said = self.decode_of(name, text)
            self.assertEqual(code, 2, said)
            self.assertIn("not read: programming_examples/fused_decode/fused_decode.py", said)
            self.assertNotIn("differs", said)
            if name == "computed":
                line = text.splitlines().index("K = ops.width(x)") + 1
                self.assertIn(f"fused_decode.py:{line}: K", said)

    def test_a_function_that_was_not_read_is_no_difference(self):
        facts = json.loads(TRANSCRIPT.read_text())
        model = facts["models"]["llama32_1b"]
        model["programs"] = [p for p in model["programs"] if p["phase"] != "prompt"]
        model.update(phases_not_read=["prompt"], not_read=["llms/llama32_1b/llama32_1b_prefill.py:7: goes elsewhere"])
        code, text = self.compare(facts)
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"llama32_1b +o_ffn +not read")
        self.assertIn("llama32_1b_prefill.py:7", text)
        self.assertIn("0 differ", text)

    def test_what_is_no_checkout_is_an_error(self):
        done = subprocess.run([sys.executable, TOOL, self.work], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is no checkout of MLIR-AIR", done.stderr)

    def test_the_description_for_people_names_arguments_in_order(self):
        text = tyto("kernels", "describe", "--shape", "qwen3-0.6b").stdout
        self.assertIn("rms_qkv_qknorm_rope (main:rms_qkv_qknorm_rope): for prompts", text)
        self.assertIn("self_attn.q_norm.weight", text)
        self.check_error(tyto("kernels", "describe", "--shape", "huge"), 2, "huge")


if __name__ == "__main__":
    main()
