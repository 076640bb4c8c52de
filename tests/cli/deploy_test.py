#!/usr/bin/env python3
"""What is in deploy/, looked at by the programs it is for."""
import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import ROOT, TYTO, CliTest, main
from nginx import write_nginx_conf

DEPLOY = ROOT / "deploy"
SERVICES = ("tyto.service", "tyto@.service")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})


class Deploy(CliTest):
    def test_units_say_what_systemd_knows(self):
        self.need("systemd-analyze")
        with tempfile.TemporaryDirectory() as folder:
            for unit in (*SERVICES, "tyto.socket"):
                text = (DEPLOY / unit).read_text().replace("/usr/local/bin/tyto", str(Path(TYTO).resolve()))
                (Path(folder) / unit).write_text(text)
            for unit in ("tyto.service", "tyto.socket", "tyto@9378.service"):
                result = run("systemd-analyze", "verify", f"{folder}/{unit}")
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""), unit)

    def test_units_are_hardened(self):
        self.need("systemd-analyze")
        for unit in SERVICES:
            result = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(DEPLOY / unit))
            exposure = re.search(r"Overall exposure level for tyto.*\.service: ([\d.]+)", result.stdout)
            self.assertIsNotNone(exposure, result.stdout + result.stderr)
            self.assertLessEqual(float(exposure.group(1)), 3.0, result.stdout)

    def test_the_npu_stays_within_reach(self):
        text = (DEPLOY / "tyto.service").read_text()
        for line in ("DeviceAllow=char-accel rw", "LimitMEMLOCK=infinity", "SupplementaryGroups=render"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("\nPrivateDevices", text)

    def test_replicas_differ_in_their_port_alone(self):
        one, many = ((DEPLOY / unit).read_text().splitlines() for unit in SERVICES)
        different = [pair for pair in zip(one, many, strict=True) if pair[0] != pair[1]]
        self.assertEqual([many.split("=")[0] for _, many in different[1:]], ["Description", "ExecStart"])
        self.assertEqual(different[2][0], different[2][1].replace(" --port %i", ""))

    def test_nginx_takes_the_example(self):
        self.need("nginx")
        conf = write_nginx_conf(self.work, 8080, (9378, 9379))
        result = run("nginx", "-t", "-p", str(self.work), "-c", str(conf), "-e", str(self.work / "error.log"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("[warn]", result.stderr)


if __name__ == "__main__":
    main()
