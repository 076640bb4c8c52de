#!/usr/bin/env python3
"""tyto doctor."""
import json
import os
import re
import shutil
import socket

from harness import OWLET, CliTest, main, tyto, write_tree


class Doctor(CliTest):
    def doctor(self, root, *args):
        return tyto("doctor", "--root", root, *args, environment={"XDG_CACHE_HOME": str(self.work / "cache")})

    def machine(self, name):
        """A Strix Halo whose driver is not loaded."""
        pci = "sys/bus/pci/devices/0000:c5:00.1/"
        return write_tree(self.work / name, {
            pci + "vendor": "0x1022\n", pci + "device": "0x17f0\n", pci + "class": "0x118000\n",
            pci + "revision": "0x11\n", "proc/sys/kernel/osrelease": "6.14.2\n",
            "lib/modules/6.14.2/kernel/drivers/accel/amdxdna/amdxdna.ko.xz": "",
            "lib/firmware/amdnpu/17f0_11/npu.sbin.xz": ""})

    def check_of(self, result, name):
        return [check for check in json.loads(result.stdout)["checks"] if check["check"] == name][0]

    def test_this_machine(self):
        result = tyto("doctor", "--json", environment={"XDG_CACHE_HOME": str(self.work / "cache")})
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if report["verdict"] == "fail" else 0)
        checks = {check["check"]: check for check in report["checks"]}
        for name in ("processor", "memory", "kernel", "NPU", "model", "cpu", "cpu speed", "vnpu", "vnpu speed"):
            self.assertIn(name, checks)
        for name in ("cpu", "vnpu", "model"):
            self.assertEqual(checks[name]["state"], "ok", checks[name])
        self.assertIn("modelled", checks["vnpu speed"]["detail"])
        self.assertIn("rmsnorm and matmul", checks["vnpu"]["detail"])
        for check in report["checks"]:
            self.assertEqual(check["fix"] is not None, check["state"] in ("warn", "fail"), check)
        self.assertEqual(json.loads(tyto("validate", "--json").stdout)["schema"], "tyto-doctor/1")

    def test_images_in_the_store_are_what_an_npu_is_tried_with(self):
        environment = {"XDG_CACHE_HOME": str(self.work / "compiled")}
        made = tyto("compile", "-m", OWLET, "--prompt-rows", "64", environment=environment)
        self.assertEqual(made.returncode, 0, made.stderr)
        check = self.check_of(tyto("doctor", "--json", environment=environment), "vnpu")
        self.assertEqual(check["state"], "ok", check)
        self.assertRegex(check["detail"], r"computes right: owlet\S*/lm_head_gemv off by")

    def test_a_recorded_machine(self):
        result = self.doctor(self.machine("unloaded"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        lines = result.stdout.splitlines()
        self.assertTrue(any(line.startswith("✓ NPU ") and "Strix Halo" in line for line in lines), result.stdout)
        self.assertTrue(any(line.startswith("✗ driver ") for line in lines), result.stdout)
        self.assertIn("sudo modprobe amdxdna", lines[-1])
        self.assertNotIn("cpu speed", result.stdout)  # nothing is tried out for another machine
        for line in lines:
            self.assertLessEqual(len(line), 100, line)

    def test_a_damaged_kernel_cache(self):
        manifest = self.work / "cache" / "tyto" / "kernels" / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{ damaged")
        result = self.doctor(self.machine("damaged"), "--json")
        manifest.unlink()
        check = self.check_of(result, "kernel images")
        self.assertEqual(check["state"], "fail")
        self.assertIn("manifest.json", check["detail"])

    def test_a_model_that_does_not_open(self):
        result = tyto("doctor", "-m", self.work / "absent.gguf", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.check_of(result, "model")["state"], "fail")

    def test_the_last_line_says_that_everything_works_and_what_is_missing(self):
        result = tyto("doctor", environment={"XDG_CACHE_HOME": str(self.work / "none")})
        if "none on the PCI bus" not in result.stdout:
            return
        self.assertRegex(" ".join(result.stdout.split()), "Everything works. No NPU was found; if this is a Ryzen AI machine, enable the NPU "
                         r"\(IPU\) in the BIOS\.$")
        self.assertRegex(result.stdout, r"· IOMMU and \d+ others +skipped: no NPU")
        self.assertNotRegex(result.stdout, r"(\w+) +not usable: \1:")  # the name once
        self.assertNotIn("expected", result.stdout)

    def test_a_report_to_send_names_no_person_no_machine_and_no_private_folder(self):
        home = self.work / "home" / "ada-lovelace"
        model = home / "My secret folder" / "engine.gguf"
        model.parent.mkdir(parents=True)
        shutil.copy(self.model, model)
        report = home / "report.json"
        environment = {"HOME": str(home), "USER": "ada-lovelace", "LOGNAME": "ada-lovelace", "HOSTNAME": "difference-engine",
                       "XDG_CACHE_HOME": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
        result = tyto("doctor", "-m", model, "--report", report, environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        text = report.read_text()
        for private in ("ada-lovelace", "difference-engine", "My secret", "secret folder", str(self.work), os.getcwd()):
            self.assertNotIn(private, text)
        self.assertNotRegex(text, rf"\b{re.escape(socket.gethostname())}\b")
        found = json.loads(text)
        self.assertEqual(found["schema"], "tyto-doctor-report/1")
        self.assertEqual(set(found), {"schema", "time", "tyto", "machine", "verdict", "checks", "runs"})
        self.assertIn("engine.gguf", self.check_of_report(found, "model")["detail"])
        run = found["runs"][0]
        self.assertEqual((run["device"], run["error"]), ("cpu", None))
        self.assertEqual(run["receipt"]["generated_tokens"], 16)
        self.assertRegex(found["tyto"]["version"], r"^\d")
        self.assertEqual(tyto("doctor", "--report", report, "--root", self.machine("sent")).returncode, 1)  # its own kind is replaced
        self.assertEqual(json.loads(report.read_text())["runs"], [])  # nothing is tried out for another machine
        other = self.work / "other.json"
        other.write_text("{}")
        self.check_error(tyto("doctor", "--report", other), 2, "other.json", "--force")

    def check_of_report(self, report, name):
        return [check for check in report["checks"] if check["check"] == name][0]

    def test_bad_usage(self):
        self.check_error(tyto("doctor", "--root", self.work / "nowhere"), 2, "nowhere")


if __name__ == "__main__":
    main()
