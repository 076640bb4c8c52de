#!/usr/bin/env python3
"""--energy and tyto power."""
import json

from harness import OWLET, CliTest, main, tyto, write_tree


class Energy(CliTest):
    SOURCES = ["rapl", "amdgpu", "amdxdna", "nvml"]

    def machine(self, name):
        """13 W on the amdgpu rail, and a counter that stands still."""
        return write_tree(self.work / name, {
            "sys/class/hwmon/hwmon2/name": "amdgpu\n",
            "sys/class/hwmon/hwmon2/power1_label": "PPT\n",
            "sys/class/hwmon/hwmon2/power1_average": "13000000\n",
            "sys/class/powercap/intel-rapl:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl:0/energy_uj": "5000000\n"})

    def power(self, root, *args):
        return tyto("power", "--root", root, "--settle", "0.01", "-r", "1", *args)

    def test_run_names_every_rail_or_the_reason(self):
        flags = ["-m", OWLET, "-p", "x", "-n", "4", "--temp", "0"]
        result = tyto("run", *flags, "--energy")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("energy · ")]
        self.assertEqual(list(dict.fromkeys(line.split()[2] for line in lines)), self.SOURCES)
        for line in lines:
            self.assertTrue("J/token" in line or "n/a (" in line, line)
        self.assertEqual(result.stdout, tyto("run", *flags).stdout)
        self.assertNotIn("energy", tyto("run", *flags).stderr)

    def test_a_simulations_energy_is_not_a_devices(self):
        result = tyto("run", "-m", OWLET, "-p", "x", "-n", "4", "--device", "vnpu", "--prompt-rows", "64", "--energy")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("energy · ", result.stderr)
        self.assertNotIn("J/token", result.stderr)

    def test_bench_has_energy_in_both_formats(self):
        flags = ["bench", "-m", self.model, "-p", "16", "-n", "4", "-r", "1", "--energy"]
        rows = json.loads(tyto(*flags, "-o", "json").stdout)
        for row in rows:
            self.assertEqual(list(dict.fromkeys(rail["source"] for rail in row["energy"])), self.SOURCES)
            for rail in row["energy"]:
                self.assertEqual(rail["joules"] is None, rail["reason"] is not None)
        self.assertNotIn("no --energy", tyto(*flags).stdout)
        self.assertIn("n/a (no --energy)", tyto(*flags[:-1]).stdout)
        self.check_error(tyto(*flags, "--ab", "cpu,cpu"), 2, "--energy")

    def test_commands_that_measure_nothing_do_not_take_the_flag(self):
        self.check_error(tyto("eval", "-m", self.model, "--ids", "1", "--logits", self.work / "x", "--energy"), 2,
                         "--energy")

    def test_power_of_a_command(self):
        result = self.power(self.machine("steady"), "--idle", "0.6", "--json", "--", "sh", "-c", "echo loud; sleep 0.6")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)  # what the command prints is not in it
        self.assertEqual(report["schema"], "tyto-power/1")
        load = report["loads"][0]
        self.assertEqual(load["load"], "sh -c 'echo loud; sleep 0.6'")
        self.assertGreaterEqual(load["seconds"][0], 0.6)
        rails = {rail["source"]: rail for rail in load["rails"]}
        self.assertEqual(list(rails), ["rapl", "amdgpu", "amdxdna"])
        self.assertIn("did not move", rails["rapl"]["reason"])
        self.assertIn("no NPU", rails["amdxdna"]["reason"])
        self.assertIsNone(rails["amdgpu"]["reason"])
        self.assertEqual(rails["amdgpu"]["kind"], "sampled power")
        self.assertAlmostEqual(rails["amdgpu"]["idle_watts"]["mean"], 13, places=6)
        self.assertAlmostEqual(rails["amdgpu"]["load_watts"]["mean"], 13, places=6)
        self.assertAlmostEqual(rails["amdgpu"]["net_joules"]["mean"], 0, places=6)
        self.assertIs(rails["amdgpu"]["above_idle"], False)

    def test_power_of_a_model(self):
        result = self.power(self.machine("model"), "--idle", "0.6", "-m", self.model, "-p", "16", "-n", "4",
                            "--load", "0.6")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("pp16: ", "tg4: ", "executed on cpu", "amdgpu PPT", "13.00 ± 0.00", "cannot be told from idle",
                     "n/a (no NPU"):
            self.assertIn(part, result.stdout)
        self.check_error(self.power(self.machine("virtual"), "-p", "0", "-n", "0"), 2, "nothing to measure")
        self.check_error(self.power(self.machine("virtual"), "-m", OWLET, "--device", "vnpu"), 2, "simulated")

    def test_power_without_a_rail_says_why_and_runs_nothing(self):
        empty = write_tree(self.work / "bare", {"proc/version": ""})
        marker = self.work / "marker"
        result = tyto("power", "--root", empty, "--", "touch", marker)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no power rail", result.stderr)
        self.assertIn("rapl package: n/a (", result.stdout)
        self.assertFalse(marker.exists())
        rails = json.loads(tyto("power", "--root", empty, "--json", "--", "true").stdout)["rails"]
        self.assertTrue(all(rail["reason"] for rail in rails))

    def test_commands_that_go_wrong(self):
        def fails(*command, flags=()):
            return self.power(self.machine("wrong"), "--idle", "0.01", *flags, "--", *command)
        self.check_error(fails("sh", "-c", "exit 7"), 1, "exit code 7")
        self.check_error(fails("sh", "-c", "kill -9 $$"), 1, "signal 9")
        self.check_error(fails(self.work / "no-such-program"), 1, "cannot be started")
        self.check_error(fails("sleep", "1000", flags=("--timeout", "1")), 1, "killed")


if __name__ == "__main__":
    main()
