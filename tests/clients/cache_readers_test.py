#!/usr/bin/env python3
"""What `tyto pull` fetched, read by programs that other people wrote.

Usage: cache_readers_test.py PATH_TO_TYTO NODE_MODULES
"""
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
import harness  # noqa: E402
from hub import Hub  # noqa: E402

MODULES = sys.argv[2]


class CacheReaders(harness.CliTest):
    def test_hugging_face(self):
        home = tempfile.mkdtemp(dir=self.work)
        with Hub({"tiny-Q4_K_M.gguf": self.model.read_bytes(), "README.md": b"# tiny"}) as hub:
            environment = {"HF_HOME": home, "HF_HUB_CACHE": "", "HF_ENDPOINT": hub.url(), "no_proxy": "*"}
            pulled = harness.tyto("pull", "org/model", environment=environment)
        self.assertEqual(pulled.returncode, 0, pulled.stderr)
        result = subprocess.run(["node", HERE / "cache_readers_test.mjs", f"{home}/hub", MODULES], capture_output=True,
                                text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"# pass [1-9]")


if __name__ == "__main__":
    harness.main()
