"""Text and logits of the shipped model: the plug-in beside llama.cpp's CPU backend."""
import re

from harness import PLACES, ROOT, SPARE_TOKENS, GgmlTest, complete, last_lines, mul_mat_count, owlet, probe, run, text_of

TYPES = ["f16", "bf16", "q8_0", "q4_0", "q4_k_m"]
TOKENS = 64
# Two candidates closer than this, in logits, may change places: the NPU's GEMM has int8 weights and activations.
SMALL_MARGIN = 0.5
LARGEST_KL = 0.01


class Text(GgmlTest):
    def check_type(self, type_name):
        steps = probe(owlet(type_name), TOKENS)
        different = [i for i, step in enumerate(steps) if step["token"] != step["other"]]
        for i in different:
            self.assertLess(steps[i]["margin"], SMALL_MARGIN, f"token {i} of {type_name}")
        same = steps[:different[0]] if different else steps
        on_cpu = complete(owlet(type_name), TOKENS + SPARE_TOKENS, device="none")
        on_npu = complete(owlet(type_name), TOKENS + SPARE_TOKENS)
        self.assertTrue(on_cpu.text.startswith(text_of(steps)), f"{on_cpu.text}\n\n{text_of(steps)}")
        self.assertTrue(on_npu.text.startswith(text_of(same)), f"{on_npu.text}\n\n{text_of(same)}")
        self.assertGreater(mul_mat_count(on_npu.receipt), 0)
        print(f"\n  {type_name}: {len(same)} of {len(steps)} tokens the same, {len(different)} near-ties decided "
              f"differently ", end="")

    def test_f16(self):
        self.check_type("f16")

    def test_bf16(self):
        self.check_type("bf16")

    def test_q8_0(self):
        self.check_type("q8_0")

    def test_q4_0(self):
        self.check_type("q4_0")

    def test_q4_k_m(self):
        self.check_type("q4_k_m")


class Divergence(GgmlTest):
    """Kullback-Leibler divergence on held-out text, by llama.cpp's own tool."""

    def check_type(self, type_name):
        base = PLACES.work / f"logits-{type_name}"
        common = ["-m", owlet(type_name), "-f", ROOT / "models/owlet/heldout.txt", "-c", 256, "--chunks", 2]
        result = run("llama-perplexity", *common, "-dev", "none", "--save-all-logits", base, plugin=False, timeout=300)
        self.assertEqual(result.returncode, 0, last_lines(result.stderr))
        mean = self.mean_divergence([*common, "-dev", PLACES.device, "-ngl", 99, "--kl-divergence",
                                     "--kl-divergence-base", base])
        base.unlink()
        print(f"\n  {type_name}: mean KL divergence {mean:.6f} ", end="")
        self.assertLess(mean, LARGEST_KL)

    def mean_divergence(self, flags):
        """As llama-completion it may end before its last lines are written; then it is run again."""
        for _ in range(3):
            result = run("llama-perplexity", *flags, timeout=600)
            self.assertEqual(result.returncode, 0, last_lines(result.stderr))
            found = re.search(r"Mean\s+KLD:\s+(-?[\d.e+-]+)", result.stdout + result.stderr)
            if found:
                return float(found[1])
        self.fail(f"no mean in the output: {last_lines(result.stdout + result.stderr)}")

    def test_f16(self):
        self.check_type("f16")

    def test_bf16(self):
        self.check_type("bf16")

    def test_q8_0(self):
        self.check_type("q8_0")

    def test_q4_0(self):
        self.check_type("q4_0")

    def test_q4_k_m(self):
        self.check_type("q4_k_m")
