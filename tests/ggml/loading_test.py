"""Stock llama.cpp finds the plug-in's devices, and gets none of them where the settings are wrong."""
import re
import subprocess
import unittest
from pathlib import Path

from harness import PLACES, VARIABLES, GgmlTest, errors_of_ours, owlet, run


def list_devices(**settings):
    return run("llama-completion", "--list-devices", settings=settings)


class Devices(GgmlTest):
    def names(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line.split(":")[0].strip() for line in result.stdout.splitlines() if line.startswith("  ") and ":" in line]

    def test_the_virtual_npu_is_listed_and_called_virtual(self):
        result = list_devices()
        self.assertIn("VXDNA0", self.names(result))
        line = next(line for line in result.stdout.splitlines() if "VXDNA0" in line)
        self.assertRegex(line.lower(), "virtual")

    def test_without_the_plug_in_there_is_no_such_device(self):
        result = run("llama-completion", "--list-devices", plugin=False)
        self.assertNotIn("XDNA", result.stdout)

    def test_other_programs_list_it_too(self):
        self.assertIn("VXDNA0", run("llama-bench", "--list-devices").stdout)

    def test_a_device_by_name_is_the_only_one(self):
        self.assertEqual(self.names(list_devices(DEVICE="VXDNA0")), ["VXDNA0"])

    def test_a_device_that_is_not_there_is_an_error(self):
        if Path("/dev/accel/accel0").exists():
            self.skipTest("this machine may have an NPU: /dev/accel/accel0")
        result = list_devices(DEVICE="XDNA0")
        self.assertNotIn("XDNA0", result.stdout)
        self.assertEqual(len(errors_of_ours(result.stderr)), 1, result.stderr)
        self.assertIn("XDNA0", errors_of_ours(result.stderr)[0])

    def test_listing_leaves_no_receipt_of_work(self):
        self.assertNotIn("tyto receipt: ", list_devices().stderr)


class OtherRelease(GgmlTest):
    """A ggml of another version than the plug-in was built for, as far as the plug-in can tell."""

    def test_both_versions_are_named_and_nothing_is_offered(self):
        source, library = PLACES.work / "other.c", PLACES.work / "other.so"
        source.write_text('const char * ggml_version(void) { return "0.0.7"; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
        result = run("llama-completion", "--list-devices", settings={"LD_PRELOAD": library})
        self.assertNotIn("XDNA", result.stdout)
        ours = errors_of_ours(result.stderr)
        self.assertEqual(len(ours), 1, result.stderr)
        header = (PLACES.llama_cpp / "source/ggml/CMakeLists.txt").read_text()
        built_for = ".".join(re.findall(r"set\(GGML_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", header))
        self.assertIn("0.0.7", ours[0])
        self.assertIn(built_for, ours[0])


class WrongSettings(GgmlTest):
    """The plug-in offers nothing, so that `-dev VXDNA0` is refused by llama.cpp instead of running on the CPU."""

    def complete(self, **settings):
        return run("llama-completion", "-m", owlet("q8_0"), "-dev", PLACES.device, "-ngl", 99, "-p", "Hi", "-n", 1,
                   "-no-cnv", settings=settings)

    def test_an_unknown_variable_lists_the_known_ones(self):
        self.check_refused(self.complete(TURBO="1"), "GGML_TYTO_TURBO", *VARIABLES)

    def test_a_misspelt_one_too(self):
        self.check_refused(self.complete(MIN_MAC="1"), "GGML_TYTO_MIN_MAC")

    def test_bad_values_name_the_variable_and_the_value(self):
        bad = [("MIN_N", "many"), ("MIN_N", "-1"), ("MIN_N", ""), ("MIN_N", "GPU0:8"), ("MAX_N", "1.5"), ("MAX_N", "8 "),
               ("MIN_MACS", "1e6x"), ("MIN_MACS", "99999999999999999999"), ("FUSION", "nuclear"), ("MACHINE", "toaster"), ("DEVICE", "GPU0"),
               ("REQUIRE", "maybe")]
        for name, value in bad:
            with self.subTest(name=name, value=value):
                self.check_refused(self.complete(**{name: value}), f"GGML_TYTO_{name}", value)

    def test_a_range_of_n_that_holds_nothing(self):
        self.check_refused(self.complete(MIN_N="8", MAX_N="4"), "GGML_TYTO_MIN_N", "GGML_TYTO_MAX_N")

    def test_files_that_cannot_be_written_are_refused_at_the_start(self):
        for name in ("RECEIPT", "TRACE"):
            with self.subTest(name=name):
                self.check_refused(self.complete(**{name: "/nonexistent/file.json"}), f"GGML_TYTO_{name}",
                                   "/nonexistent/file.json")

    def test_require_is_not_satisfied_by_a_virtual_npu(self):
        if Path("/dev/accel/accel0").exists():
            self.skipTest("this machine may have an NPU: /dev/accel/accel0")
        self.check_refused(self.complete(REQUIRE="1"), "GGML_TYTO_REQUIRE", "no NPU")
        self.check_refused(self.complete(REQUIRE="1", DEVICE="VXDNA0"), "GGML_TYTO_REQUIRE", "virtual")

    def test_auto_offers_no_virtual_npu(self):
        if Path("/dev/accel/accel0").exists():
            self.skipTest("this machine may have an NPU: /dev/accel/accel0")
        self.check_refused(self.complete(DEVICE="auto"), "GGML_TYTO_DEVICE", "no NPU can be used")

    def test_require_that_is_off(self):
        self.assertEqual(self.complete(REQUIRE="0").returncode, 0)
