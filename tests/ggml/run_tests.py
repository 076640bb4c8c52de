#!/usr/bin/env python3
"""The llama.cpp plug-in inside stock llama.cpp programs.

Usage: run_tests.py [--plugin FILE] [--llama-cpp FOLDER] [--tyto FILE] [--device NAME] [-k PATTERN] [--jobs N]

`make test-ggml` builds all of it first. FOLDER is what tests/scripts/build_llama_cpp made. -k runs only tests whose name
contains PATTERN. With --jobs, files of tests run beside each other in processes of their own, each of which prints when it has ended.
"""
import argparse
import re
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness

NO_TESTS = 5  # that fit -k; of a file among several no fault


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    places = harness.PLACES
    parser.add_argument("--plugin", type=Path, default=places.plugin)
    parser.add_argument("--llama-cpp", type=Path, default=places.llama_cpp)
    parser.add_argument("--tyto", type=Path, default=places.tyto)
    parser.add_argument("--device", default=places.device)
    parser.add_argument("-k", dest="pattern", action="append")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--file", default="*_test.py", help="the tests of this file alone")
    options = parser.parse_args()
    for path in (options.plugin, options.llama_cpp, options.tyto):
        if not path.exists():
            parser.exit(1, f"run_tests.py: {path} does not exist; `make test-ggml` builds it\n")
    return options


def run_file(name):
    """Exit code and number of tests of a process with one file of tests."""
    result = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--jobs", "1", "--file", name], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=3000)
    print(f"{name}\n{result.stdout}", flush=True)
    ran = re.search(r"^Ran (\d+) test", result.stdout, re.MULTILINE)
    return result.returncode, int(ran[1]) if ran else 0


def run_beside_each_other(jobs):
    names = sorted(path.name for path in Path(__file__).parent.glob("*_test.py"))
    with ThreadPoolExecutor(jobs) as workers:
        results = list(workers.map(run_file, names))
    failed = [name for name, (code, _) in zip(names, results) if code not in (0, NO_TESTS)]
    count = sum(count for _, count in results)
    print(f"{count} tests in {len(names)} files: {'failed: ' + ' '.join(failed) if failed else 'OK'}")
    return 0 if count > 0 and not failed else 1


def run_here(options):
    loader = unittest.TestLoader()
    if options.pattern:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in options.pattern]
    tests = loader.discover(str(Path(__file__).parent), pattern=options.file)
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    if result.wasSuccessful() and result.testsRun == 0:
        return NO_TESTS
    return 0 if result.wasSuccessful() else 1


def main():
    options = arguments()
    places = harness.PLACES
    places.plugin, places.llama_cpp = options.plugin.resolve(), options.llama_cpp.resolve()
    places.tyto, places.device = options.tyto.resolve(), options.device
    try:
        return run_beside_each_other(options.jobs) if options.jobs > 1 else run_here(options)
    finally:
        shutil.rmtree(places.work)


if __name__ == "__main__":
    sys.exit(main())
