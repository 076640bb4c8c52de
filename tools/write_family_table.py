#!/usr/bin/env python3
"""Writes the tables of families, types and devices in docs/models.md, as a test made them from what the devices say."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, metavar="BUILD_FOLDER", help="with tests/llama_test in it")
    build = parser.parse_args().build
    made = build / "family_table.md"
    made.unlink(missing_ok=True)
    subprocess.run([build / "tests/llama_test", "--gtest_filter=FamilyTable.*"], stdout=subprocess.DEVNULL)
    page = ROOT / "docs/models.md"
    text, count = re.subn(r"<!-- families -->\n.*?<!-- end of families -->\n", lambda _: made.read_text(),
                          page.read_text(), flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{page} has no place for the tables")
    page.write_text(text)


if __name__ == "__main__":
    main()
