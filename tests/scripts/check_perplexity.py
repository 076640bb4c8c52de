#!/usr/bin/env python3
"""The shipped model's perplexity on its held-out text, against what transformers computed.

Usage: check_perplexity.py TYTO MODEL_FOLDER
"""
import json
import re
import subprocess
import sys
from pathlib import Path


def main():
    tyto, folder = sys.argv[1], Path(sys.argv[2])
    expected = json.loads((folder / "golden.json").read_text())["perplexity"]
    output = subprocess.run(
        [tyto, "perplexity", "-m", str(folder), "-f", str(folder / expected["file"]), "--window",
         str(expected["window"]), "--stride", str(expected["stride"])],
        capture_output=True, encoding="utf-8", timeout=900, check=True).stdout
    value, tokens = re.match(r"perplexity ([\d.]+) ± [\d.]+ over (\d+) tokens", output).groups()
    difference = abs(float(value) / expected["ppl"] - 1)
    print(f"{output.strip()}; transformers {expected['ppl']:.4f}; difference {difference:.4%}")
    if int(tokens) != expected["tokens"] or difference > 0.005:
        print(f"expected {expected['tokens']} tokens and a difference of at most 0.5 %")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
