"""bench/ggml-context and bench/ggml-power: what they show, what they refuse, and that a simulation has no speed."""
import json
import subprocess

from harness import PLACES, ROOT, GgmlTest, owlet, program


def bench(script, *args):
    return subprocess.run([str(ROOT / "bench" / script), "--llama-bench", str(program("llama-bench")), "--plugin",
                           str(PLACES.plugin), "-m", str(owlet("q8_0")), "-o", str(PLACES.work), *map(str, args)],
                          capture_output=True, text=True, timeout=300)


class BenchTest(GgmlTest):
    def check_error(self, result, *fragments):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, lines[0])


class Context(BenchTest):
    def rows(self, *args):
        result = bench("ggml-context", *args)
        self.assertEqual(result.returncode, 0, result.stderr)
        data = json.loads((PLACES.work / "ggml-context-owlet-q8_0.json").read_text())
        return result.stdout, data["rows"]

    def test_a_virtual_npu_has_modelled_speed_alone(self):
        text, rows = self.rows("-dev", PLACES.device, "-p", "32,64", "-r", 1)
        self.assertEqual([row["test"] for row in rows], ["pp32", "pp64"])
        for line in text.splitlines()[2:4]:
            self.assertRegex(line, r"\| \d+\.\d\d modelled \|")
            self.assertNotIn("±", line)
        self.assertIn("not a measurement", text)
        for row in rows:
            self.assertFalse([name for name in row["llama_bench"] if name.endswith(("_ts", "_ns"))])
            self.assertEqual(row["receipt"]["device"], PLACES.device)
            self.assertEqual(row["receipt"]["tokens"], row["llama_bench"]["n_prompt"])
            self.assertGreater(row["modelled"]["npu_seconds_modelled"], 0)

    def test_other_devices_are_measured_and_have_no_receipt(self):
        text, rows = self.rows("-dev", "none", "-p", "16", "-r", 2)
        self.assertIn("measured", text)
        self.assertNotIn("modelled", text)
        self.assertIsNone(rows[0]["receipt"])
        self.assertEqual(len(rows[0]["llama_bench"]["samples_ts"]), 2)

    def test_errors_are_one_line_with_a_next_step(self):
        self.check_error(bench("ggml-context", "-dev", "ABACUS0", "-p", "8"), "llama-bench ended with")
        self.check_error(bench("ggml-context", "--plugin", "/nonexistent.so"), "/nonexistent.so", "make plugin")
        self.check_error(bench("ggml-context", "-p", "0"), "-p")


class Power(BenchTest):
    def machine(self):
        """A recorded one: 13 W on the amdgpu rail, whatever happens."""
        folder = PLACES.work / "machine/sys/class/hwmon/hwmon2"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("name", "amdgpu"), ("power1_label", "PPT"), ("power1_average", "13000000")):
            (folder / name).write_text(text + "\n")
        return PLACES.work / "machine"

    def test_every_rail_or_its_reason_for_prefill_and_decode(self):
        result = bench("ggml-power", "-dev", "none", "-p", 64, "-n", 16, "-r", 1, "--trials", 1, "--idle", 0.6,
                       "--settle", 0.01, "--root", self.machine(), "--tyto", PLACES.tyto)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertIn("| pp64 | none | amdxdna NPU_power | n/a (", result.stdout)
        for name in ("pp64", "tg16"):
            line = next(line for line in lines if line.startswith(f"| {name} | none | amdgpu PPT"))
            self.assertRegex(line, r"\| 13.00 \| 13.00 \| -?0.00 ± \d+\.\d\d \| cannot be told from idle \|")
        rows = json.loads((PLACES.work / "ggml-power-owlet-q8_0.json").read_text())["rows"]
        self.assertEqual([row["load"] for row in rows], ["load", "pp64", "tg16"])

    def test_joules_of_a_simulation_are_refused(self):
        self.check_error(bench("ggml-power", "-dev", PLACES.device, "--root", self.machine(), "--tyto", PLACES.tyto),
                         PLACES.device, "virtual")

    def test_no_rail_is_an_error(self):
        bare = PLACES.work / "bare"
        bare.mkdir(exist_ok=True)
        self.check_error(bench("ggml-power", "-dev", "none", "--root", bare, "--tyto", PLACES.tyto), "no power rail")
