#!/usr/bin/env python3
"""Checks that each folder of src/ includes only the folders below it.

Direct edges as in docs/architecture.md; a folder may also include what its neighbours below include
(docs/decisions/001-layer-edges.md). Files at the seams:
only src/device/npu may name xrt, only src/base/environment.cc may call getenv, only src/shell/line_editor.cc may
include libedit, and only src/serve/http/*.cc Boost, which is slow to compile.
Only src/hub/http.cc may include libcurl: whatever does not go through `tyto pull` opens no connection to anywhere.
"""
import re
import sys
from pathlib import Path

EDGES = {
    "base": [],
    "tensor": ["base"],
    "text": ["base"],
    "power": ["base"],
    "trace": ["power"],
    "evidence": ["trace"],
    "report": ["evidence"],
    "model": ["tensor", "text"],
    "program": ["tensor", "trace"],
    "cost": ["program"],
    "device": ["cost"],
    "llama": ["model", "program", "device"],
    "doctor": ["model", "device"],
    "engine": ["llama", "text"],
    "plan": ["engine", "report"],
    "library": ["engine"],
    "check": ["plan"],
    "bench": ["plan"],
    "serve": ["engine", "report"],
    "hub": ["model"],
    "shell": ["base"],
    "cli": ["check", "bench", "doctor", "serve", "hub", "shell"],
    "ggml": ["program", "device", "report"],
}


def reachable(layer):
    seen, queue = {layer, "base"}, [layer]
    while queue:
        for below in EDGES[queue.pop()]:
            if below not in seen:
                seen.add(below)
                queue.append(below)
    return seen


def problems(source):
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        layer = path.relative_to(source).parts[0]
        if layer not in EDGES:
            yield f"{path}: folder '{layer}' is not in the table of layers"
            continue
        allowed = reachable(layer)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path}:{number}"
            include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if include:
                target = include.group(1).split("/")[0]
                if "/" not in include.group(1):
                    yield f"{where}: include {include.group(1)} is not relative to src/"
                elif target not in allowed:
                    yield f"{where}: {layer} must not include {target}"
            if "getenv" in line and path.name != "environment.cc":
                yield f"{where}: getenv outside base/environment.cc"
            if "#include <histedit.h>" in line and path.name != "line_editor.cc":
                yield f"{where}: libedit outside shell/line_editor.cc"
            if "#include <boost/" in line and (path.parent.name != "http" or path.suffix != ".cc"):
                yield f"{where}: Boost outside serve/http/*.cc"
            if "<curl/" in line and path.relative_to(source).as_posix() != "hub/http.cc":
                yield f"{where}: libcurl outside hub/http.cc"
            if "xrt::" in line and "npu" not in path.parts and "vnpu" not in path.parts:
                yield f"{where}: xrt:: outside device/npu"


def main():
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "layers hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
