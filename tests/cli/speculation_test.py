#!/usr/bin/env python3
"""--speculate and --draft of run, chat and profile: the same text in fewer calls, and what is said of it."""
import json
import re

from harness import FIXTURES, OWLET, CliTest, main, tyto

STORY = "Tell me a story about a fox who finds a lamp."
REPEATS = "I am Owlet! I am Owlet! I am Owlet! I am"


class Speculation(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.models = {"bf16": OWLET}
        for kind in ("q8_0", "q4_0", "q4_k_m"):
            cls.models[kind] = cls.work / f"{kind}.gguf"
            assert tyto("quantize", "-m", OWLET, "--type", kind, "-o", cls.models[kind]).returncode == 0

    def answer(self, *flags, prompt=STORY, model=OWLET, tokens=48):
        """The text, the receipt, and what was said beside it."""
        receipt = self.work / "receipt.json"
        result = tyto("run", "-m", model, "-p", prompt, "-n", tokens, "-v", "--receipt", receipt, "--force", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        checked = tyto("receipt", "check", receipt)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        return result.stdout, json.loads(receipt.read_text()), result.stderr

    def check_counts(self, receipt, source):
        told = receipt["speculation"]
        self.assertEqual(list(told), ["source", "calls", "drafted", "accepted", "calls_per_token", "drafting_s"])
        self.assertEqual(told["source"], str(source))
        self.assertLessEqual(told["accepted"], told["drafted"])
        self.assertEqual(told["calls"] + told["accepted"], receipt["decoded_tokens"])
        self.assertAlmostEqual(told["calls_per_token"], told["calls"] / receipt["decoded_tokens"])
        return told

    # Every type with both who guess; samplers and numbers of threads take turns (tests/unit/engine has all of them).
    def test_the_text_is_that_without_guesses(self):
        samplings = (["--temp", "0"], ["--temp", "1", "--seed", "7", "--repeat-penalty", "1.1"])
        for i, (kind, model) in enumerate(self.models.items()):
            sampling = samplings[i % 2]
            expected, plain, _ = self.answer("-t", "1", *sampling, model=model)
            self.assertNotIn("speculation", plain)
            guesses = (["--speculate", "lookup"], ["--draft", self.models["q4_0"], "--draft-max", "4"])
            for flags, threads in zip(guesses, ("1", "2") if i < 2 else ("2", "1")):
                text, receipt, _ = self.answer("-t", threads, *sampling, *flags, model=model)
                self.assertEqual(text, expected, (kind, sampling, flags, threads))
                self.check_counts(receipt, flags[1])

    def test_text_that_repeats_takes_fewer_calls(self):
        flags = ["--temp", "0", "--raw", "--ignore-eos"]
        expected, _, _ = self.answer(*flags, prompt=REPEATS, tokens=120)
        text, receipt, said = self.answer(*flags, "--speculate", "lookup", prompt=REPEATS, tokens=120)
        self.assertEqual(text, expected)
        told = self.check_counts(receipt, "lookup")
        self.assertGreater(told["drafted"], 0)
        # How much is drafted depends on what a row costs on this machine now, so one token and one call are possible.
        self.assertRegex(said, f"{told['accepted']} of {told['drafted']} tokens? drafted by lookup accepted")
        self.assertRegex(said, "calls? per token")

    def test_a_model_that_guesses_for_itself_is_right(self):
        _, receipt, _ = self.answer("--temp", "0", "--draft", OWLET)
        told = self.check_counts(receipt, OWLET)
        self.assertEqual(told["accepted"], told["drafted"])
        self.assertGreater(told["drafting_s"], 0)

    def test_devices_that_take_a_row_at_a_time_say_so(self):
        expected, _, _ = self.answer("--device", "vnpu", "--prompt-rows", "64", "--temp", "0", tokens=8)
        for flags in (["--speculate", "lookup"], ["--draft", self.models["q4_0"]]):
            text, receipt, said = self.answer("--device", "vnpu", "--prompt-rows", "64", "--temp", "0", *flags, tokens=8)
            self.assertEqual(text, expected)
            told = self.check_counts(receipt, flags[1])
            self.assertEqual((told["drafted"], told["drafting_s"]), (0, 0))
            line = f"vnpu checks drafted tokens one by one, which gains nothing: plain decoding instead of {flags[1]}"
            self.assertEqual(receipt["fallbacks"].count(line), 1)
            self.assertIn(line, said)

    def test_prompts_may_have_another_device(self):
        pair = ["--prefill-device", "vnpu", "--decode-device", "cpu", "--prompt-rows", "64", "--temp", "0"]
        expected, _, _ = self.answer(*pair, tokens=32)
        text, receipt, _ = self.answer(*pair, "--draft", OWLET, tokens=32)
        self.assertEqual(text, expected)
        self.check_counts(receipt, OWLET)
        self.assertFalse([line for line in receipt["fallbacks"] if "drafted tokens" in line])

    def test_a_chat_says_the_same(self):
        lines = "Hello\nTell me a story.\nTell it again.\n"
        for sampling in (["--temp", "0"], ["--temp", "1", "--seed", "3"]):
            expected = tyto("chat", "-m", OWLET, "-n", "40", *sampling, text=lines)
            for flags in (["--speculate", "lookup"], ["--draft", self.models["q4_0"]]):
                result = tyto("chat", "-m", OWLET, "-n", "40", *sampling, *flags, text=lines)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, expected.stdout)
                self.assertEqual(len(re.findall(" calls? per token", result.stderr)), 3, result.stderr)
            self.assertNotIn("calls per token", expected.stderr)

    def test_a_profile_has_it(self):
        path = self.work / "profile.json"
        result = tyto("profile", "-m", OWLET, STORY, "-n", "20", "--temp", "0", "--draft", OWLET, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("draft", result.stdout)
        profile = json.loads(path.read_text())
        self.check_counts(profile["runs"][0]["receipt"], OWLET)
        again = tyto("profile", "--from", path)  # held against the recording
        self.assertEqual(again.returncode, 0, again.stderr)
        self.check_error(tyto("profile", "-m", OWLET, "--sweep", "8,16", "-n", "2", "--speculate", "lookup"), 2, "--speculate")

    def test_bad_input_is_refused(self):
        run = ["run", "-m", OWLET, "-p", "x", "-n", "2"]
        self.check_error(tyto(*run, "--speculate", "maybe"), 2, "--speculate", "lookup")
        self.check_error(tyto(*run, "--speculate", "lookup", "--draft", OWLET), 2, "--speculate and --draft exclude each other")
        self.check_error(tyto(*run, "--draft-max", "4"), 2, "--draft-max: has no effect without --speculate or --draft")
        for number in ("0", "16", "-1", "x"):
            self.check_error(tyto(*run, "--speculate", "lookup", "--draft-max", number), 2, "--draft-max")
        self.check_error(tyto(*run, "--draft", ""), 2, "--draft")
        self.check_error(tyto(*run, "--draft", self.work / "none.gguf"), 1, "none.gguf")
        self.check_error(tyto(*run, "--draft", self.model), 1, "cannot draft for this model: it has", "tokens, the model")
        self.check_error(tyto(*run, "--draft", FIXTURES / "llama2" / "model"), 1, "cannot draft for this model")

    def test_a_receipt_that_does_not_add_up_is_found(self):
        path = self.work / "receipt.json"
        self.answer("--temp", "0", "--draft", OWLET)
        text = path.read_text()
        calls = json.loads(text)["speculation"]["calls"]
        path.write_text(text.replace(f'"calls": {calls},', f'"calls": {calls - 1},'))
        result = tyto("receipt", "check", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("accepted tokens make", result.stdout)


if __name__ == "__main__":
    main()
