#!/usr/bin/env python3
"""The vulkan device, on Mesa's llvmpipe under Vulkan's validation layer."""
import json
import os
import re
import tempfile
import urllib.request

from harness import OWLET, CliTest, main, tyto
from serving import Serving

# Mesa and its compiler leave memory behind, and are unloaded before LeakSanitizer could tell their leaks from ours:
# those are what the unit tests look for.
os.environ.update(VK_ICD_FILENAMES="/usr/share/vulkan/icd.d/lvp_icd.x86_64.json",
                  VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation",
                  MESA_SHADER_CACHE_DIR=f"{tempfile.gettempdir()}/tyto-test-cache",  # as tests/support/software_gpu.h
                  ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
PROMPT = "Why do owls fly silently at night?"
SOFTWARE = ["--gpu", "llvmpipe"]
NO_DRIVER = {"VK_ICD_FILENAMES": "/nonexistent"}
PAIRS = [("vulkan", "vulkan"), ("vulkan", "cpu"), ("cpu", "vulkan"), ("vulkan", "vnpu"), ("vnpu", "vulkan")]


def run(*flags, environment=None):
    return tyto("run", "-m", OWLET, "-p", PROMPT, "-n", 6, "--temp", "0", *flags, environment=environment)


class Vulkan(CliTest):
    def fails(self, result, code, *words):
        """In one line, and without a word on stdout."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_guesses_are_left_out_and_that_is_said(self):
        expected = run("--device", "vulkan", *SOFTWARE)
        guessing = run("--device", "vulkan", *SOFTWARE, "--speculate", "lookup")
        self.assertEqual(guessing.returncode, 0, guessing.stderr)
        self.assertEqual(guessing.stdout, expected.stdout)
        self.assertEqual(guessing.stderr.count("vulkan checks drafted tokens one by one"), 1)

    def test_every_pair_says_what_the_cpu_says(self):
        """What the validation layer finds would stand in the text."""
        expected = run("--device", "cpu").stdout
        receipt = self.work / "receipt.json"
        for prefill, decode in PAIRS:
            rows = ["--prompt-rows", "64"] if "vnpu" in (prefill, decode) else []
            result = run("--prefill-device", prefill, "--decode-device", decode, *SOFTWARE, *rows, "--receipt", receipt,
                         "--force")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, expected, (prefill, decode))
            told = json.loads(receipt.read_text())
            for phase, device in (("prefill", prefill), ("decode", decode)):
                self.assertIn(device, [row["name"] for row in told["phases"][phase]])
            if prefill != decode:
                self.assertEqual(told["kv_handed_over"]["times"], 1)
            # Tokens wait for no compiler; a prompt shorter than a chunk is a form of its own.
            prepared = [row.get("preparing_ns", 0) for row in told["devices"] if row["name"] == "vulkan"]
            self.assertEqual([ns > 0 for ns in prepared], [prefill == "vulkan"], told["devices"])
            self.assertTrue(any("llvmpipe" in line and "software" in line for line in told["fallbacks"]), told["fallbacks"])

    def test_verify_passes(self):
        result = tyto("verify", "-m", OWLET, "--device", "vulkan", *SOFTWARE)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("PASS: vulkan agrees with the f32 reference", result.stdout)

    def test_software_is_no_proof_of_a_gpu(self):
        for require in ("vulkan", "vulkan:decode"):
            self.fails(run("--device", "vulkan", *SOFTWARE, "--require", require), 3, "llvmpipe", "software")
        self.fails(run("--device", "auto", "--among", "cpu,vulkan", *SOFTWARE, "--require", "vulkan"), 3, "software")
        self.fails(run("--device", "vulkan"), 1, "llvmpipe", "--gpu llvmpipe")

    def test_a_machine_without_a_gpu(self):
        result = run("--device", "vulkan", environment=NO_DRIVER)
        self.fails(result, 1, "vulkan", "driver")
        result = run("--device", "auto", environment=NO_DRIVER)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.fails(run("--device", "auto", "--require", "vulkan", environment=NO_DRIVER), 3, "driver")

    def test_flags_that_make_no_sense_are_refused(self):
        self.fails(run("--device", "cpu", *SOFTWARE), 2, "--gpu")
        self.fails(run("--device", "vulkan", "--gpu", "radeon"), 2, "--gpu radeon", "llvmpipe")
        self.fails(run("--device", "vulkan", "--gpu", "77"), 2, "--gpu 77")
        self.fails(run("--device", "vulkan", "--gpu", ""), 2, "--gpu")

    def test_help_puts_each_flag_under_the_device_it_is_for(self):
        text = tyto("run", "--help-all").stdout
        of = {}
        for line in text.splitlines():
            if line and not line.startswith(" "):
                heading = line.rstrip(":")
            elif line.strip().startswith("-"):
                of[re.search(r"--[a-z0-9-]+", line)[0]] = heading
        self.assertEqual((of["--gpu"], of["--on-device-error"], of["--weights"], of["--isa"]),
                         ("GPU", "Device", "NPU", "Device"))
        self.assertNotIn("--on-npu-error", text)

    def test_what_the_machine_and_the_build_have(self):
        devices = tyto("devices").stdout
        self.assertRegex(devices, r"vulkan +no +a GPU through Vulkan")
        self.assertIn("--gpu llvmpipe", devices)
        number = re.search(r"--gpu (\d+): llvmpipe.*, software", devices)
        self.assertIsNotNone(number, devices)
        by_number = run("--device", "vulkan", "--gpu", number[1])
        self.assertEqual(by_number.returncode, 0, by_number.stderr)
        self.assertRegex(tyto("--version").stdout, r"Vulkan +[1-9]\d* kernels are built in")

    def test_a_profile_has_a_time_for_every_launch(self):
        file = self.work / "profile.json"
        result = tyto("profile", "-m", OWLET, "-p", PROMPT, "-n", 4, "--temp", "0", "--ignore-eos", "--device", "vulkan",
                      *SOFTWARE, "--json", file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("modelled", result.stdout)
        profile = json.loads(file.read_text())
        report = profile["report"]
        # The first call of a form is prepared, and that is neither an upload nor the GPU's time.
        kinds, columns = profile["event_kinds"], profile["event_columns"]
        for run_ in profile["runs"]:
            for event in (dict(zip(columns, values)) for values in run_["events"]):
                self.assertFalse(kinds[event["kind"]] == "upload" and event["bytes"] == 0, event)
        self.assertIn("prepare kernels", [row["step"] for row in report["prefill"]["flow"]["rows"]])
        for phase in ("prefill", "decode"):
            flow = report[phase]["flow"]
            self.assertAlmostEqual(sum(row["total_ms"] for row in flow["rows"]), flow["total_ms"], delta=1e-3)
            self.assertGreaterEqual(len(report[phase]["operators"]), 4, report[phase]["operators"])
            self.assertTrue(all(row["launches"] > 0 for row in report[phase]["operators"]))
            calls = sum(row["run_ms"]["total"] for row in report[phase]["calls"])
            inside = sum(row["total_ms"] for row in report[phase]["operators"])
            self.assertTrue(0 < inside <= calls + 1e-3, (inside, calls))
        self.assertEqual(len(report["layers"]), 5)
        again = tyto("profile", "--from", file)
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_the_server_answers(self):
        expected = run("--device", "cpu").stdout
        server = Serving("--device", "vulkan", *SOFTWARE)
        try:
            body = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 6, "temperature": 0}).encode()
            request = urllib.request.Request(server.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                answer = json.load(reply)
            self.assertEqual(answer["choices"][0]["message"]["content"].strip(), expected.strip())
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    main()
