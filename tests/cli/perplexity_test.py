#!/usr/bin/env python3
"""tyto perplexity: its windows, and llama-perplexity's."""
import json
import math
import re
import struct

from harness import OWLET, CliTest, main, tyto

TEXT = "The owl sees in the dark. A barn owl hears a mouse under the snow, and waits for it.\n" * 4


class Perplexity(CliTest):
    def setUp(self):
        self.text = self.work / "text.txt"
        self.text.write_text(TEXT)

    def perplexity(self, *flags, model=OWLET):
        result = tyto("perplexity", "-m", model, "-f", self.text, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)
        value, error, tokens = re.match(r"perplexity ([\d.]+) ± ([\d.]+) over (\d+) tokens", result.stdout).groups()
        return float(value), float(error), int(tokens), result.stdout

    def surprises(self, tokens):
        """-log p of every token but the first, given those before it, computed from logits here."""
        out = self.work / "logits.f32"
        result = tyto("eval", "-m", OWLET, "--ids", ",".join(map(str, tokens)), "--logits", out, "--force")
        self.assertEqual(result.returncode, 0, result.stderr)
        values = [value for value, in struct.iter_unpack("<f", out.read_bytes())]
        vocab = len(values) // len(tokens)
        for position, token in enumerate(tokens[1:]):
            logits = values[position * vocab:(position + 1) * vocab]
            most = max(logits)
            yield most + math.log(sum(math.exp(x - most) for x in logits)) - logits[token]

    def test_like_llama_cpp_scores_second_halves_of_windows_that_begin_with_bos(self):
        size = 24
        found = tyto("tokenize", "-m", OWLET, "--json", "--stdin", text=TEXT[:-1])
        tokens = json.loads(found.stdout)["ids"]
        windows = [tokens[at:at + size] for at in range(0, len(tokens) - size + 1, size)]
        self.assertGreater(len(windows), 2)
        bos = tokens[0]
        scores = [score for window in windows for score in list(self.surprises([bos, *window[1:]]))[size // 2:]]
        mean = sum(scores) / len(scores)
        spread = sum((score - mean) ** 2 for score in scores) / len(scores)
        value, error, count, text = self.perplexity("--like", "llama.cpp", "-c", size)
        self.assertEqual(count, len(scores))
        self.assertIn(f"({len(windows)} windows of {size}, last halves)", text)
        self.assertAlmostEqual(value / math.exp(mean), 1, places=3)
        self.assertAlmostEqual(error / (math.exp(mean) * math.sqrt(spread / (len(scores) - 1))), 1, places=2)

    def test_a_text_that_is_too_short_to_say_much_is_noted(self):
        self.text.write_text("Six tokens are very few.")
        self.assertRegex(tyto("perplexity", "-m", OWLET, "-f", self.text).stderr, r"\d+ scored tokens are too few to compare models")
        self.text.write_text(TEXT * 8)
        self.assertNotIn("too few", tyto("perplexity", "-m", OWLET, "-f", self.text).stderr)

    def test_json(self):
        value, error, count, _ = self.perplexity("-c", "32")
        row = json.loads(tyto("perplexity", "-m", OWLET, "-f", self.text, "-c", "32", "--json").stdout)
        self.assertEqual((round(row["perplexity"], 4), round(row["standard_error"], 4), row["tokens"]), (value, error, count))
        self.assertAlmostEqual(math.exp(row["nll_per_token"]), row["perplexity"])
        self.assertEqual((row["executed_on"], row["cut"]), ("cpu", "window 32, stride 16"))

    def test_c_sets_the_window_and_the_stride_is_half_of_it(self):
        said = self.perplexity("-c", "32")[-1]
        self.assertIn("(window 32, stride 16)", said)
        for flags in (["--window", "32"], ["--context", "32"], ["-c", "32", "--stride", "16"]):
            self.assertEqual(self.perplexity(*flags)[-1], said)
        # More than the text has is no error: it is then one window.
        self.assertIn("(window 512, stride 256)", self.perplexity(model=self.model)[-1])
        text = tyto("perplexity", "--help").stdout
        self.assertIn("-c, --context N", text)
        self.assertNotIn("--window", text)

    def test_what_cannot_be_scored(self):
        def refused(*flags, code=2):
            return tyto("perplexity", "-m", self.model, "-f", self.text, *flags), code

        self.check_error(*refused("--stride", "0"), "--stride")
        self.check_error(*refused("-c", "8", "--stride", "9"), "--stride 9", "window of 8")
        self.check_error(*refused("-c", "1"), "--context")
        self.check_error(*refused("-c", "100000"), "-c 100000", "512 positions")
        self.check_error(*refused("--like", "llama.cpp", "-c", "3"), "at least 4")
        self.check_error(*refused("--like", "llama.cpp", "--stride", "4"), "exclude each other")
        self.check_error(*refused("--like", "something"), "--like")
        self.text.write_text("the owl")
        self.check_error(*refused("--like", "llama.cpp", code=1), "fewer than two windows of 512", "-c")
        self.text.write_text("")
        self.check_error(*refused(code=1), "too short")


main()
