#!/usr/bin/env python3
"""The installed library: examples/embed.cc is built against it, by pkg-config and by CMake, and run.

Usage: check_library.py CMAKE COMPILER SOURCE BUILD SANITIZERS   (SANITIZERS may be empty)
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(embedder LANGUAGES CXX)
find_package(tyto REQUIRED)
add_executable(embed {source}/examples/embed.cc)
target_link_libraries(embed PRIVATE tyto::tyto)
"""


def run(*command, expected=0, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8", timeout=300, **more)
    if done.returncode != expected:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}, not {expected}\n{done.stdout}{done.stderr}")
    return done


def expect(condition, what, done):
    if not condition:
        sys.exit(f"{what}\nstdout: {done.stdout}\nstderr: {done.stderr}")


def check_program(program, owlet):
    done = run(program, owlet, "Tell me a story about a fox.")
    lines = done.stdout.strip().splitlines()
    expect(len(lines) >= 2 and lines[-1].endswith("· stopped at end of turn"), "no receipt in the last line", done)
    expect(" tok/s · cpu " in lines[-1], "the receipt does not name the cpu", done)
    done = run(program, owlet, "Hello.", "vnpu", expected=1)
    expect("vnpu" in done.stderr and done.stderr.count("\n") == 1, "--require of a simulation is no one-line error", done)
    expect(done.stdout == "", "text went out before the receipt proved its device", done)
    done = run(program, "/nowhere/model.gguf", "Hello.", expected=1)
    expect("/nowhere/model.gguf" in done.stderr and done.stderr.count("\n") == 1, "a missing model is no one-line error",
           done)
    run(program, expected=2)


def main():
    cmake, compiler, source, build, sanitizers = sys.argv[1:]
    flags = ["-std=c++20"] + ([f"-fsanitize={sanitizers}"] if sanitizers else [])
    with tempfile.TemporaryDirectory() as folder:
        prefix, owlet = Path(folder) / "prefix", Path(source) / "models/owlet"
        run(cmake, "--install", build, "--prefix", prefix)
        env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
        found = run("pkg-config", "--cflags", "--libs", "tyto", env=env).stdout.split()
        program = Path(folder) / "embed"
        run(compiler, *flags, Path(source) / "examples/embed.cc", *found, "-o", program)
        check_program(program, owlet)
        project = Path(folder) / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT.format(source=source))
        run(cmake, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS={' '.join(flags[1:])}")
        run(cmake, "--build", project / "build")
        run(project / "build/embed", expected=2)
    print("the library serves a program by pkg-config and by CMake")


if __name__ == "__main__":
    main()
