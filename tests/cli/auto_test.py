#!/usr/bin/env python3
"""--device auto and tyto bench --calibrate."""
import json
import tempfile
from pathlib import Path

from harness import OWLET, CliTest, main, tyto

ROWS = ["--prompt-rows", "64"]
VNPU = [*ROWS, "--vnpu-hostile", "on"]  # as the harness says of --device vnpu


class Auto(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        file = cls.work / "measured.json"
        result = tyto("bench", "--calibrate", "-m", cls.model, "-r", 1, "--device", "cpu,vnpu", *ROWS, "--calibration", file)
        assert result.returncode == 0, result.stderr
        cls.measured = file.read_text()

    def setUp(self):
        self.cache = Path(tempfile.mkdtemp(dir=self.work))
        self.file = self.cache / "tyto" / "calibration.json"
        self.file.parent.mkdir()
        self.named = self.cache / "named.json"

    def tyto(self, *args):
        return tyto(*args, environment={"XDG_CACHE_HOME": str(self.cache)})

    def run_auto(self, *args, prompt="Hello"):
        return self.tyto("run", "-m", self.model, "--raw", prompt, "-n", 2, "--temp", 0, "--ignore-eos", "--device",
                         "auto", *args)

    def calibrate(self, *args, model=None):
        return self.tyto("bench", "--calibrate", "-m", model or self.model, "-r", 2, *args)

    def calibrated(self, **rates):
        """A calibration with these figures, of both phases or of each, instead of those that were measured."""
        whole = json.loads(self.measured)
        for device in whole["models"][0]["devices"]:
            name = "modelled_tok_s" if device["modelled"] else "tok_s"
            rate = rates[device["name"]]
            for phase, rate in zip(("prefill", "decode"), rate if isinstance(rate, tuple) else (rate, rate)):
                for point in device[phase]:
                    point[name] = rate
        return whole

    def write(self, calibration, file=None):
        (file or self.file).write_text(json.dumps(calibration, indent=2))

    def test_a_cpu_alone_is_the_only_choice(self):
        result = self.run_auto("--receipt", self.cache / "r.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("auto · cpu, the only choice", result.stderr)
        receipt = json.loads((self.cache / "r.json").read_text())
        self.assertIn("cpu, the only choice", receipt["device_choice"])
        self.assertEqual([device["name"] for device in receipt["devices"]], ["cpu"])
        named = self.tyto("run", "-m", self.model, "--raw", "Hello", "-n", 2, "--temp", 0, "--ignore-eos", "--receipt",
                          self.cache / "n.json")
        self.assertEqual(named.stdout, result.stdout)
        self.assertIsNone(json.loads((self.cache / "n.json").read_text())["device_choice"])

    def test_what_is_required_and_not_there_ends_with_3(self):
        if Path("/dev/accel/accel0").exists():
            self.skipTest("this machine may have an NPU: /dev/accel/accel0")
        self.check_error(self.run_auto("--require", "npu"), 3, "--require npu", "npu:")
        self.check_error(self.run_auto("--require", "npu:decode"), 3, "--require npu:decode")
        self.check_error(self.run_auto("--require", "vnpu"), 3, "--device auto chooses from")
        self.check_error(self.run_auto("--require", "vnpu", "--among", "vnpu"), 3, "virtual")
        self.check_error(self.run_auto("--require", "abacus"), 2, "--require abacus: no such device")
        self.assertIn("auto · cpu, the only choice", self.run_auto("--require", "cpu", "--among", "cpu,vnpu").stderr)

    def test_a_virtual_device_is_chosen_only_if_it_is_named(self):
        self.write(self.calibrated(cpu=1, vnpu=1e6))
        self.assertIn("cpu, the only choice", self.run_auto().stderr)
        alone = self.run_auto("--among", "vnpu", *VNPU)
        self.assertIn("auto · vnpu, the only choice", alone.stderr)
        self.assertIn(" · vnpu (modelled)", alone.stderr)

    def test_the_faster_one_by_its_figures(self):
        for fast, slow in (("vnpu", "cpu"), ("cpu", "vnpu")):
            self.write(self.calibrated(**{fast: 1e6, slow: 10}))
            result = self.run_auto("--among", "cpu,vnpu", *VNPU)
            self.assertIn(f"auto · {fast}: ", result.stderr)
            self.assertIn("vnpu 1.8 s modelled" if slow == "vnpu" else "cpu 1.8 s measured", result.stderr)
            self.assertIn("auto · calibrated with llama ", result.stderr)
            self.assertRegex(result.stderr, f"(?m)^2 tokens.* · {fast}( .modelled.)?.*$")
        # What only the other one uses is left out.
        self.assertNotIn("prompt-rows", result.stderr)

    def test_two_devices_where_that_is_faster(self):
        self.write(self.calibrated(cpu=(10, 1e6), vnpu=(1e6, 10)))
        receipt = self.cache / "r.json"
        result = self.run_auto("--among", "cpu,vnpu", *VNPU, "--receipt", receipt, prompt="Once upon a time")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("auto · prefill on vnpu, decode on cpu: ", result.stderr)
        phases = json.loads(receipt.read_text())["phases"]
        self.assertIn("vnpu", [device["name"] for device in phases["prefill"]])
        self.assertEqual([device["name"] for device in phases["decode"]], ["cpu"])
        only = self.run_auto("--among", "cpu,vnpu", *VNPU, "--require", "cpu:prefill")
        self.assertIn("auto · cpu", only.stderr)

    def test_without_a_calibration_it_is_modelled_and_says_so(self):
        result = self.run_auto("--among", "cpu,vnpu", *VNPU)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ms modelled", result.stderr)
        self.assertIn("ms estimated", result.stderr)
        self.assertIn("tyto bench --calibrate", result.stderr)

    def test_what_is_not_of_this_machine_is_ignored_with_a_reason(self):
        good = self.calibrated(cpu=10, vnpu=1e6)
        cases = [({"cpu": "Another Processor"}, "is of another machine (Another Processor"),
                 ({"tyto": "0.0.1"}, "was made with Tyto 0.0.1"),
                 ({"schema": "tyto-calibration-0"}, "is not tyto-calibration-1")]
        for change, reason in cases:
            self.write({**good, **change})
            result = self.run_auto("--among", "cpu,vnpu", *VNPU)
            self.assertEqual(result.returncode, 0, result.stderr)
            line, = [line for line in result.stderr.splitlines() if reason in line]
            self.assertIn("ignored", line)
            self.assertIn(reason, self.tyto("devices").stdout.replace("\n", " "))
        other = json.loads(json.dumps(good))
        other["models"][0]["devices"][1]["driver"] = "vendor 9"
        self.write(other)
        self.assertIn("vnpu was measured as another", self.run_auto("--among", "cpu,vnpu", *VNPU).stderr)
        self.write(good)
        self.assertIn("vnpu was measured with --prompt-rows 64 --vnpu-hostile on",
                      self.run_auto("--among", "cpu,vnpu").stderr)
        small = json.loads(json.dumps(good))
        small["models"][0]["weight_bytes"] //= 100
        self.write(small)
        self.assertIn("model of this size", self.run_auto("--among", "cpu,vnpu", *VNPU).stderr)

    def test_a_named_file_must_be_a_calibration(self):
        self.write(self.calibrated(cpu=10, vnpu=1e6), self.named)
        result = self.run_auto("--among", "cpu,vnpu", *VNPU, "--calibration", self.named)
        self.assertIn("auto · vnpu: ", result.stderr)
        self.named.write_text('{"schema": ')
        flags = ["--among", "cpu,vnpu", *VNPU, "--calibration"]
        self.check_error(self.run_auto(*flags, self.named), 1, "named.json")
        self.check_error(self.run_auto(*flags, self.cache / "none.json"), 1, "none.json")
        self.file.write_text("junk")  # the user's own does no harm
        self.assertEqual(self.run_auto(*flags[:-1]).returncode, 0)

    def test_flags_that_cannot_be_honoured_are_refused(self):
        run = ["run", "-m", self.model, "--raw", "Hi", "-n", 1]
        for flags, fragment in ((["--among", "cpu"], "--among"), (["--calibration", "x"], "--calibration"),
                                (["--device", "auto", "--among", "abacus"], "abacus"),
                                (["--device", "auto", "--among", "cpu,cpu"], "twice"),
                                (["--device", "auto", "--among", ""], "--among"),
                                (["--device", "auto", "--vnpu-fault", "x"], "--vnpu-fault"),
                                (["--device", "auto", "--prefill-device", "cpu"], "--prefill-device"),
                                (["--device", "auto", "--decode-device", "cpu"], "--decode-device"),
                                (["--device", "auto", "--min-n", "2"], "--min-n"),
                                (["--device", "auto", "--among", "cpu", "--prompt-rows", "64"], "--prompt-rows")):
            self.check_error(self.tyto(*run, *flags), 2, fragment)
        for flags in (["--device", "auto"], ["--ab", "cpu,auto"], ["--calibrate", "-p", "8"], ["--calibrate", "-o", "md"],
                      ["--calibrate", "--device", "auto"], ["--calibrate", "--device", "cpu,cpu"],
                      ["--calibrate", "-t", "1,2"], ["--calibration", "x"], ["--calibrate", "--no-ledger"]):
            self.check_error(self.tyto("bench", "-m", self.model, *flags), 2, flags[-2])
        self.assertFalse(self.file.exists())

    def test_calibrating_keeps_what_it_measured(self):
        result = self.calibrate()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("kept in", result.stderr)
        whole = json.loads(self.file.read_text())
        self.assertEqual(whole["schema"], "tyto-calibration-1")
        model, = whole["models"]
        self.assertEqual((model["type"], [device["name"] for device in model["devices"]]), ("bf16", ["cpu"]))
        cpu, = model["devices"]
        self.assertFalse(cpu["modelled"])
        self.assertEqual([point["tokens"] for point in cpu["prefill"]], [16, 128, 512])
        self.assertEqual([point["tokens"] for point in cpu["decode"]], [16])  # the model's context is 512
        for point in cpu["prefill"] + cpu["decode"]:
            self.assertGreater(point["tok_s"], 0)
        for word in ("pp16", "pp512", "tg8 @ d16"):
            self.assertIn(word, result.stdout)
        self.assertIn("goes by llama", self.tyto("devices").stdout)
        check, = [check for check in json.loads(self.tyto("doctor", "--json").stdout)["checks"]
                  if check["check"] == "calibration"]
        self.assertEqual(check["state"], "ok")

    def test_modelled_figures_are_marked_and_models_add_up(self):
        self.assertEqual(self.calibrate().returncode, 0)
        result = self.calibrate("--device", "vnpu", *ROWS, model=OWLET)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(" modelled", result.stdout)
        first, second = json.loads(self.file.read_text())["models"]
        self.assertEqual([device["modelled"] for device in first["devices"]], [False])
        vnpu, = second["devices"]
        self.assertTrue(vnpu["modelled"])
        for point in vnpu["prefill"] + vnpu["decode"]:
            self.assertEqual(list(point), ["tokens", "modelled_tok_s"])
        self.assertEqual(self.calibrate().returncode, 0)  # the same model again
        self.assertEqual(len(json.loads(self.file.read_text())["models"]), 2)

    def test_a_file_that_is_no_calibration_of_this_machine_is_not_lost(self):
        other = self.calibrated(cpu=1, vnpu=1)
        self.write(other)
        other["cpu"] = "Another Processor"
        for text, code in (("my notes", 1), (json.dumps(other, indent=2), 2)):
            self.named.write_text(text)
            result = self.calibrate("--calibration", self.named)
            self.check_error(result, code, "named.json")
            self.assertEqual(self.named.read_text(), text)
        before = self.file.read_text()
        self.check_error(self.calibrate("--device", "cpu", model=self.cache / "none.gguf"), 1, "none.gguf")
        self.assertEqual(self.file.read_text(), before)
        self.named.unlink()
        self.assertEqual(self.calibrate("--calibration", self.named).returncode, 0)
        self.assertIn("tyto-calibration-1", self.named.read_text())
        self.write(other)  # the user's own is only a cache
        result = self.calibrate()
        self.assertIn("Another Processor", result.stderr)
        self.assertEqual(self.run_auto("--among", "cpu").returncode, 0)
        self.assertNotIn("Another Processor", self.file.read_text())

    def test_every_command_takes_auto(self):
        logits = self.cache / "l.f32"
        commands = [["eval", "--ids", "1,2", "--logits", logits], ["verify", "-n", "2"], ["profile", "--raw", "Hi", "-n", "2"],
                    ["diagnose", "--raw", "-p", "Hi"], ["embed", "Hi"]]
        for command in commands:
            result = self.tyto(command[0], "-m", self.model, *command[1:], "--device", "auto")
            self.assertIn("auto · cpu, the only choice", result.stderr, command)
            self.assertNotIn("no such device", result.stderr, command)


if __name__ == "__main__":
    main()
