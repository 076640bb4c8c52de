#!/usr/bin/env python3
"""check_install_packages.py ROOT: what tools/install_packages does on each family of distributions.

Programs that stand in for the package managers know two installed packages and write down how they are called.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
TOOL = ROOT / "tools" / "install_packages"
INSTALLED = {"debian": ("cmake", "libfmt-dev"), "fedora": ("cmake", "fmt-devel"), "arch": ("cmake", "fmt"),
             "opensuse": ("cmake", "fmt-devel")}
QUERY = """#!/bin/sh
for last in "$@"; do :; done
case " {0} " in *" $last "*) echo 'install ok installed' ;; *) exit 1 ;; esac
"""
RECORD = "#!/bin/sh\necho \"$(basename $0) $*\" >> {0}/calls\n"


class InstallPackages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def run_on(self, release, family, *packages):
        (self.root / "os-release").write_text(release)
        programs = {name: QUERY.format(" ".join(INSTALLED.get(family, ()))) for name in ("dpkg-query", "rpm", "pacman")}
        programs |= {name: RECORD.format(self.root) for name in ("apt-get", "dnf", "zypper")}
        programs["sudo"] = "#!/bin/sh\nexec \"$@\"\n"
        for name, text in programs.items():
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.root}:{os.environ['PATH']}",
                       "OS_RELEASE": str(self.root / "os-release")}
        return subprocess.run([TOOL, *packages], capture_output=True, text=True, timeout=60, env=environment)

    def calls(self):
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def test_nothing_is_said_when_nothing_is_missing(self):
        for family in INSTALLED:
            result = self.run_on(f"ID={family}\n", family, "cmake", "libfmt-dev")
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""), family)
        self.assertEqual(self.calls(), [])

    def test_debian_and_derivatives_install(self):
        result = self.run_on('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian", "cmake", "libboost-dev", "g++")
        self.assertEqual((result.returncode, result.stderr), (0, "Installing libboost-dev g++\n"))
        self.assertEqual(self.calls(), ["apt-get update -qq",
                                        "apt-get install -y -qq --no-install-recommends libboost-dev g++"])

    def test_others_get_one_command(self):
        for release, family, command in (
                ("ID=fedora\n", "fedora", "dnf install gcc-c++ boost-devel"),
                ('ID="nobara"\nID_LIKE="fedora"\n', "fedora", "dnf install gcc-c++ boost-devel"),
                ("ID=arch\n", "arch", "pacman -S --needed gcc boost"),
                ("NAME=Manjaro\nID=manjaro\nID_LIKE=arch\n", "arch", "pacman -S --needed gcc boost"),
                ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "opensuse",
                 "zypper install gcc-c++ libboost_headers-devel")):
            result = self.run_on(release, family, "g++", "cmake", "libboost-dev")
            self.assertEqual(result.returncode, 1, release)
            self.assertIn(f"\n  {command}\n", result.stderr)
        self.assertEqual(self.calls(), [])

    def test_what_a_distribution_lacks_is_said(self):
        result = self.run_on("ID=arch\n", "arch", "prometheus-cpp-dev", "cmake")
        self.assertEqual(result.returncode, 0)
        self.assertIn("prometheus-cpp-dev", result.stderr)

    def test_unknown_systems_are_told_the_names(self):
        result = self.run_on("ID=plan9\n", "", "g++", "cmake")
        self.assertEqual(result.returncode, 0)
        self.assertIn("g++ cmake", result.stderr)

    def test_every_package_to_build_with_has_its_names(self):
        makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
        needed = re.search(r"^BUILD_PACKAGES := (.*)$", makefile, re.MULTILINE).group(1).split()
        rows = [line.split() for line in (ROOT / "tools" / "package_names").read_text().splitlines() if line[0] != "#"]
        self.assertLessEqual(set(needed), {row[0] for row in rows})
        self.assertEqual({len(row) for row in rows}, {4})


if __name__ == "__main__":
    unittest.main()
