"""Text and logits of the shipped model: the plug-in beside llama.cpp's CPU backend."""
import re

from harness import PLACES, ROOT, SPARE_TOKENS, GgmlTest, complete, last_lines, mul_mat_count, owlet, probe, run, text_of

PROMPTS = ["Once upon a time", "Deep in the wood stood an old"]
TOKENS = 64
# Two candidates closer than this, in logits, may change places: the NPU multiplies 8-bit integers.
SMALL_MARGIN = 0.2
# Closer than this they may do so from run to run: a prompt's rows are added up in another order than single tokens.
TIE = 0.005
LARGEST_KL = 0.01


class Text(GgmlTest):
    def check_type(self, type_name, **settings):
        for prompt in PROMPTS:
            with self.subTest(prompt=prompt):
                self.check_prompt(type_name, prompt, settings)

    def check_prompt(self, type_name, prompt, settings):
        """At every token of the CPU backend's text both agree, or the choice was close. What the programs print is that, up to
        two logits that are as good as equal, as a processor that adds in f16 makes them: programs take the one or the other."""
        steps = probe(owlet(type_name), TOKENS, prompt=prompt, settings=settings)
        self.assertEqual(len(steps), TOKENS)
        different = [i for i, step in enumerate(steps) if step["token"] != step["other"]]
        for i in different:
            self.assertLess(steps[i]["margin"], SMALL_MARGIN, f"token {i} of {type_name}")
        tie = next((i for i, step in enumerate(steps) if step["margin"] < TIE), len(steps))
        self.assertGreater(tie, 4)
        certain, same = steps[:tie], steps[:min([tie, *different])]
        on_cpu = complete(owlet(type_name), TOKENS + SPARE_TOKENS, device="none", prompt=prompt)
        on_npu = complete(owlet(type_name), TOKENS + SPARE_TOKENS, prompt=prompt, settings=settings)
        self.assertEqual(on_cpu.text[:len(text_of(certain))], text_of(certain))
        self.assertEqual(on_npu.text[:len(text_of(same))], text_of(same))
        self.assertGreater(mul_mat_count(on_npu.receipt), 0)
        margins = ", ".join(f"{steps[i]['margin']:.3f}" for i in different)
        print(f"\n  {type_name} {settings or ''}: the first {len(same)} of {len(steps)} tokens are the same"
              f"{'; margins where not: ' + margins if different else ''} ", end="")

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

    def test_q4_k_m_as_single_gemms(self):
        self.check_type("q4_k_m", FUSION="op")


class Divergence(GgmlTest):
    """Kullback-Leibler divergence on held-out text, by llama.cpp's own tool."""

    def check_type(self, type_name):
        base = PLACES.work / f"logits-{type_name}"
        common = ["-m", owlet(type_name), "-f", ROOT / "models/owlet/heldout.txt", "-c", 256, "--chunks", 2,
                  "-t", 1]
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
