#!/usr/bin/env python3
"""Prompts on one device and tokens on another."""
import json
import re
import tempfile
import urllib.request
from pathlib import Path

from harness import OWLET, CliTest, main, tyto
from serving import Serving

TWO = [("cpu", "vnpu"), ("vnpu", "cpu")]
EVERY_PAIR = [("cpu", "cpu"), ("vnpu", "vnpu"), *TWO]
PROMPT = "Why do owls fly silently at night, and why do other birds not?"


def pair(prefill, decode):
    rows = ["--prompt-rows", "64"] if "vnpu" in (prefill, decode) else []
    return ["--prefill-device", prefill, "--decode-device", decode, *rows]


class Routing(CliTest):
    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))

    def tyto(self, *args, text=""):
        return tyto(*args, text=text, environment={"XDG_STATE_HOME": str(self.state)})

    def answer(self, *flags, prompt=PROMPT, tokens=8):
        """The text of a greedy run, its receipt, and what was said beside it."""
        receipt = self.work / "receipt.json"
        result = self.tyto("run", "-m", OWLET, "-p", prompt, "-n", tokens, "--temp", "0", "-v", "--receipt", receipt,
                           "--force", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, json.loads(receipt.read_text()), result.stderr

    def refusal(self, *flags, command="run"):
        result = self.tyto(command, "-m", OWLET, "-p", "Hi", "-n", "2", *flags)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        return result.returncode, result.stderr

    def devices(self, receipt, phase):
        return {device["name"] for device in receipt["phases"][phase]}

    def test_every_pair_passes_the_gate(self):
        """One device for both is what verify_test.py verifies."""
        for fusion in ("block", "token"):
            for prefill, decode in TWO:
                result = self.tyto("verify", "-m", OWLET, "--fusion", fusion, *pair(prefill, decode))
                self.assertEqual(result.returncode, 0, f"{prefill} {decode} {fusion}: {result.stdout} {result.stderr}")
                self.assertIn(f"PASS: {prefill}/{decode} agrees with the f32 reference", result.stdout)
                self.assertIn("positions handed over", result.stderr)

    def test_every_pair_says_what_one_device_says(self):
        expected, alone, _ = self.answer("--device", "cpu")
        self.assertNotIn("kv_handed_over", alone)
        for prefill, decode in EVERY_PAIR:
            text, receipt, words = self.answer(*pair(prefill, decode))
            self.assertEqual(text, expected, (prefill, decode))
            for phase, device in (("prefill", prefill), ("decode", decode)):
                self.assertIn(device, self.devices(receipt, phase))
                self.assertEqual("vnpu" in self.devices(receipt, phase), device == "vnpu", receipt["phases"])
            if prefill == decode:
                continue
            handed = receipt["kv_handed_over"]
            self.assertEqual((handed["times"], handed["positions"]), (1, receipt["prompt_tokens"]))
            self.assertIn("simulation_ns", handed)
            self.assertIn(f"KV of {handed['positions']} positions handed over", words)
            checked = self.tyto("receipt", "check", self.work / "receipt.json")
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_short_and_long_prompts_stay_where_tokens_are(self):
        count = self.answer(*pair("vnpu", "cpu"), tokens=2)[1]["prompt_tokens"]
        for flags, goes in ((["--min-n", count], True), (["--min-n", count + 1], False), (["--max-n", count], True),
                            (["--max-n", count - 1], False), (["--min-n", count, "--max-n", count], True)):
            _, receipt, _ = self.answer(*pair("vnpu", "cpu"), *flags, tokens=2)
            self.assertEqual("vnpu" in self.devices(receipt, "prefill"), goes, flags)
            self.assertNotIn("vnpu", self.devices(receipt, "decode"))
            self.assertEqual("kv_handed_over" in receipt, goes)

    def test_what_makes_no_sense_is_refused_in_one_line(self):
        for flags, words in (
                (["--prefill-device", "tpu"], "tpu"),
                (["--decode-device", ""], "--decode-device"),
                (["--min-n", "8"], "--min-n: has no effect while prompts and tokens both go to cpu"),
                (["--max-n", "8", "--prefill-device", "cpu"], "--max-n: has no effect"),
                (["--min-n", "1", *pair("cpu", "vnpu")], "--min-n"),
                (["--min-n", "9", "--max-n", "8", *pair("cpu", "vnpu")], "leave no prompt to the prefill device"),
                (["--weights", "int8", "--prefill-device", "cpu"], "--weights: has no effect with --device cpu"),
                (["--kv-type", "q8_0", "--fusion", "token", "--weights", "q4nx", *pair("cpu", "vnpu")], "--kv-type q8_0"),
                (["-c", "100000", *pair("cpu", "vnpu")], "-c 100000")):
            code, said = self.refusal(*flags)
            self.assertEqual(code, 2, said)
            self.assertIn(words, said)

    def test_a_requirement_is_judged_by_phase(self):
        for flags, words in (
                (["--require", "cpu", *pair("vnpu", "cpu")], "it did not do most of prefill"),
                (["--require", "cpu", *pair("cpu", "vnpu")], "it did not do most of decode"),
                (["--require", "vnpu:decode", *pair("cpu", "vnpu")], "the device is virtual"),
                (["--require", "npu:prefill", *pair("cpu", "vnpu")], "this run would use cpu and vnpu; add --prefill-device npu")):
            result = self.tyto("run", "-m", OWLET, "-p", PROMPT, "-n", "4", *flags)
            self.assertEqual((result.returncode, result.stdout), (3, ""), result.stderr)
            self.assertIn(words, result.stderr)
        for flags in (["--require", "cpu:prefill", *pair("cpu", "vnpu")], ["--require", "cpu:decode", *pair("vnpu", "cpu")]):
            self.answer(*flags, tokens=4)

    def test_a_second_turn_hands_back_what_was_decoded(self):
        turns = "Hi there\nWhat does a cow say?\n/exit\n"
        flags = ["--temp", "0", "-n", "6", "--verbose"]
        expected = self.tyto("chat", "-m", OWLET, *flags, "--device", "cpu", text=turns)
        for prefill, decode in TWO:
            result = self.tyto("chat", "-m", OWLET, *flags, *pair(prefill, decode), text=turns)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, expected.stdout, result.stderr)
            run = [int(count) - int(cached or 0)
                   for count, cached in re.findall(r"prompt (\d+) tokens?(?: \((\d+) from the cache\))?", result.stderr)]
            handed = [int(count) for count in re.findall(r"KV of (\d+) positions handed over", result.stderr)]
            self.assertEqual((len(run), len(handed)), (2, 2), result.stderr)
            self.assertEqual(handed[0], run[0])
            self.assertLessEqual(handed[1], run[1] + 6, "the second prompt, and what the first answer decoded")

    def test_a_device_that_fails_changes_no_text(self):
        for prefill, decode in TWO:
            expected, _, _ = self.answer(*pair(prefill, decode))
            for fault in ("error@1", "error@5"):
                text, receipt, _ = self.answer(*pair(prefill, decode), "--vnpu-fault", fault)
                self.assertEqual((text, receipt["recoveries"]), (expected, 1))
            text, receipt, words = self.answer(*pair(prefill, decode), "--vnpu-fault", "error@1", "--on-device-error", "cpu")
            self.assertIn("finished on the cpu", words)

    def test_what_is_kept_of_a_prompt_is_used_by_the_same_pair(self):
        for prefill, decode in TWO:
            kept = self.work / f"{prefill}.cache"
            first, receipt, _ = self.answer(*pair(prefill, decode), "--prompt-cache", kept)
            again, second, _ = self.answer(*pair(prefill, decode), "--prompt-cache", kept)
            self.assertEqual(first, again)
            self.assertEqual(second["cached_tokens"], receipt["prompt_tokens"] - 1)
            _, other, words = self.answer(*pair(decode, prefill), "--prompt-cache", kept, "--prompt-cache-read-only")
            self.assertEqual(other["cached_tokens"], 0, words)
            self.assertIn("was made by another build, device or setting", words)

    def test_bench_and_profile_name_both(self):
        result = self.tyto("bench", "-m", OWLET, "-p", "32", "-n", "2", "-pg", "32,2", "-r", "1", "-o", "json",
                           *pair("vnpu", "cpu"))
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([row["executed_on"] for row in rows], ["vnpu (modelled)+cpu", "cpu", "vnpu (modelled)+cpu"])
        self.assertEqual({row["devices"] for row in rows}, {"vnpu/cpu"})
        page = self.work / "profile.json"
        result = self.tyto("profile", "-m", OWLET, "-p", PROMPT, "-n", "4", "--json", page, *pair("cpu", "vnpu"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("KV handed over to vnpu", page.read_text())

    def test_the_server_routes_each_request(self):
        expected, _, _ = self.answer("--device", "cpu")
        for prefill, decode in TWO:
            with_two = Serving(*pair(prefill, decode))
            try:
                body = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "temperature": 0}).encode()
                request = urllib.request.Request(with_two.url + "/v1/chat/completions", body,
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as reply:
                    answer = json.load(reply)
                self.assertEqual(answer["choices"][0]["message"]["content"].strip(), expected.strip())
                with urllib.request.urlopen(f"{with_two.url}/v1/receipts/{answer['id']}", timeout=60) as reply:
                    receipt = json.load(reply)
                self.assertEqual("vnpu" in self.devices(receipt, "prefill"), prefill == "vnpu")
                self.assertEqual("vnpu" in self.devices(receipt, "decode"), decode == "vnpu")
                self.assertEqual(receipt["kv_handed_over"]["times"], 1)
            finally:
                self.assertEqual(with_two.stop(), 0)


if __name__ == "__main__":
    main()
