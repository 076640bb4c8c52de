#!/usr/bin/env python3
"""The llama.cpp plug-in inside stock llama.cpp programs.

Usage: run_tests.py [--plugin FILE] [--llama-cpp FOLDER] [--tyto FILE] [--device NAME] [-k PATTERN]

`make test-ggml` builds all of it first. FOLDER is what tests/scripts/build_llama_cpp made. -k runs only tests whose name
contains PATTERN.
"""
import argparse
import shutil
import sys
import unittest
from pathlib import Path

import harness


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    places = harness.PLACES
    parser.add_argument("--plugin", type=Path, default=places.plugin)
    parser.add_argument("--llama-cpp", type=Path, default=places.llama_cpp)
    parser.add_argument("--tyto", type=Path, default=places.tyto)
    parser.add_argument("--device", default=places.device)
    parser.add_argument("-k", dest="pattern", action="append")
    options = parser.parse_args()
    for path in (options.plugin, options.llama_cpp, options.tyto):
        if not path.exists():
            parser.exit(1, f"run_tests.py: {path} does not exist; `make test-ggml` builds it\n")
    return options


def main():
    options = arguments()
    places = harness.PLACES
    places.plugin, places.llama_cpp = options.plugin.resolve(), options.llama_cpp.resolve()
    places.tyto, places.device = options.tyto.resolve(), options.device
    loader = unittest.TestLoader()
    if options.pattern:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in options.pattern]
    tests = loader.discover(str(Path(__file__).parent), pattern="*_test.py")
    try:
        result = unittest.TextTestRunner(verbosity=2).run(tests)
    finally:
        shutil.rmtree(places.work)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
