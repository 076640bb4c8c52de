#!/usr/bin/env python3
"""check_find_xrt.py CMAKE FIND_XRT: where the build looks for XRT, and what it says of what it finds.

Folders with XRT's package files alone stand in for installations. The system's own folders are left out, so that the
answers are the same on a machine that has XRT.
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, FIND_XRT = sys.argv[1:3]
VERSION_FILE = """set(PACKAGE_VERSION {0})
if(NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
"""


class FindXrt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def install(self, name, version):
        """An XRT of this version, as far as CMake sees it."""
        package = self.root / name / "share" / "cmake" / "XRT"
        package.mkdir(parents=True)
        (package / "xrt-config.cmake").write_text(f"set(XRT_VERSION {version})\n")
        (package / "xrt-config-version.cmake").write_text(VERSION_FILE.format(version))
        return self.root / name

    def configure(self, variable=None, *settings):
        """Exit code and answer; `variable` is XILINX_XRT."""
        environment = {name: value for name, value in os.environ.items() if name not in ("XILINX_XRT", "XRT_DIR")}
        if variable:
            environment["XILINX_XRT"] = str(variable)
        result = subprocess.run(
            [CMAKE, f"-Dxrt_packages_folder={self.root / 'packages'}", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
             "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF", *settings, "-P", FIND_XRT],
            capture_output=True, text=True, timeout=60, env=environment)
        return result.returncode, " ".join((result.stdout + result.stderr).split())

    def test_found_by_the_variable_of_xrts_setup_script(self):
        place = self.install("mine", "2.26.0")
        code, answer = self.configure(place)
        self.assertEqual((code, answer), (0, f"-- XRT 2.26.0 in {place}: the npu device is built"))

    def test_found_where_its_packages_put_it(self):
        place = self.install("packages", "2.20.115")
        self.assertIn(f"XRT 2.20.115 in {place}:", self.configure()[1])
        self.assertIn(f"XRT 2.20.115 in {place}:", self.configure(self.root / "nowhere")[1])

    def test_the_variable_comes_first(self):
        self.install("packages", "2.23.0")
        self.assertIn("XRT 2.26.0", self.configure(self.install("mine", "2.26.0"))[1])

    def test_a_new_one_is_taken_where_the_first_is_too_old(self):
        self.install("packages", "2.23.0")
        self.assertIn("XRT 2.23.0", self.configure(self.install("mine", "2.19.194"))[1])

    def test_too_old(self):
        for version in ("2.19.194", "2.20.0", "2.20.114"):
            place = self.install(version, version)
            code, answer = self.configure(place)
            self.assertEqual(code, 0)
            self.assertIn(f"XRT {version} is too old", answer)
            self.assertIn("2.20.115 is needed", answer)
            self.assertIn(str(place), answer)
            self.assertIn("no npu device is built", answer)

    def test_absent(self):
        code, answer = self.configure()
        self.assertEqual(code, 0)
        for part in ("No XRT", "XILINX_XRT, which is not set", str(self.root / "packages"), "CMAKE_PREFIX_PATH"):
            self.assertIn(part, answer)
        self.assertIn(f"No XRT in {self.root / 'elsewhere'} (XILINX_XRT)", self.configure(self.root / "elsewhere")[1])

    def test_a_build_may_insist_on_it_or_leave_it_out(self):
        code, answer = self.configure(None, "-DTYTO_XRT=ON")
        self.assertNotEqual(code, 0)
        self.assertIn("TYTO_XRT=ON asks for one", answer)
        place = self.install("mine", "2.26.0")
        self.assertEqual(self.configure(place, "-DTYTO_XRT=ON")[0], 0)
        self.assertIn("not looked for", self.configure(place, "-DTYTO_XRT=OFF")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
