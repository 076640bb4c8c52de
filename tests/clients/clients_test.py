#!/usr/bin/env python3
"""Clients that other people wrote, against `tyto serve` with the shipped model.

Usage: clients_test.py PATH_TO_TYTO NODE_MODULES [-k PATTERN]
"""
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
import harness  # noqa: E402
from serving import Serving  # noqa: E402

MODULES = sys.argv[2]


class Clients(unittest.TestCase):
    def run_client(self, name, template, only="."):
        # The model's own template knows no tools.
        server = Serving("--chat-template", template)
        self.addCleanup(server.stop)
        result = subprocess.run(["node", f"--test-name-pattern={only}", HERE / f"{name}_test.mjs", server.url, MODULES],
                                capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"# pass [1-9]")

    def test_openai(self):
        self.run_client("openai", "llama3")

    def test_openai_tools_of_qwen(self):
        self.run_client("openai", "qwen", "^tools")

    def test_ollama(self):
        self.run_client("ollama", "llama3")

    def test_ollama_tools_of_qwen(self):
        self.run_client("ollama", "qwen", "^tools")


if __name__ == "__main__":
    if not shutil.which("node"):
        print("SKIPPED: node is not installed")
        sys.exit(77)
    harness.main()
