#!/usr/bin/env python3
"""Writes docs/layers.svg, the folders of src/ and what they include, and docs/token.svg, a token's way through the code.

Arrows come from the #include lines; those that follow from others are left out. The way of a token is the list HOPS: each
function must be in its file and named in its caller's, or nothing is written. With --check nothing is written either: exit
code 1 when the files are not what would be written.

Line counts are round, and one that is there stays while it is within a tenth of the truth: a test that fails at every
new line would only be a nuisance.
"""
import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 1000

# Folder: what it holds, the middle of its box, the width of it. How high it stands follows from what it includes.
FOLDERS = {
    "base": ("errors, files, JSON, hashes, environment, thread pool", 500, 920),
    "text": ("tokenizers, chat templates, grammars", 180, 280),
    "tensor": ("types, views, block formats", 470, 240),
    "power": ("rails, joules", 730, 200),
    "shell": ("flags, terminal", 930, 138),
    "model": ("GGUF, safetensors, config, weights", 320, 270),
    "trace": ("counters, receipts", 790, 190),
    "hub": ("tyto pull", 72, 132),
    "program": ("programs, kernels, stitch", 580, 190),
    "evidence": ("seals, checks, ledger", 795, 200),
    "cost": ("modelled time of an XDNA2", 580, 190),
    "report": ("profiles as pages, files", 795, 200),
    "device": ("cpu, npu, vnpu, vulkan", 580, 190),
    "plan": ("predicted speed, memory", 176, 184),
    "doctor": ("what is wrong here", 350, 158),
    "llama": ("forward pass, pages", 512, 150),
    "ggml": ("llama.cpp plug-in", 800, 150),
    "engine": ("generate, schedule, sample", 490, 226),
    "library": ("tyto.h", 426, 130),
    "bench": ("tyto bench", 701, 144),
    "check": ("verify, diagnose", 560, 130),
    "serve": ("the server", 846, 140),
    "cli": ("the commands", 500, 960),
}

# What happens when, how deep in calls, function, file below src/, and what it is for.
ONCE, STEP, END = "once per request", "every step: the rest of the prompt, then token by token", "in the end"
HOPS = [
    (ONCE, 0, "model_prompt", "cli/prompt.cc", "what the user typed"),
    (ONCE, 1, "render_chat", "text/chat_template.cc", "chat template: messages become text"),
    (ONCE, 1, "encode_chat", "text/chat_template.cc", "text becomes tokens"),
    (ONCE, 2, "Tokenizer::encode", "text/tokenizer/tokenizer.cc", "by the vocabulary's rules"),
    (ONCE, 0, "generate", "engine/generate.cc", "a scheduler with one job"),
    (ONCE, 0, "Scheduler::admit", "engine/scheduler.cc", "when there is room for it"),
    (ONCE, 1, "Job::admit", "engine/job.cc", "gets a sequence"),
    (ONCE, 2, "PrefixCache::find", "engine/prefix_cache.cc", "pages that hold the prompt's beginning"),
    (ONCE, 2, "Sequence::begin_with", "llama/pipeline.cc", "those need not be run again"),
    (STEP, 0, "Scheduler::step", "engine/scheduler.cc", "chooses rows of its jobs"),
    (STEP, 1, "Pipeline::reserve", "llama/pipeline.cc", "pages for the new positions"),
    (STEP, 1, "Pipeline::run", "llama/pipeline.cc", "all rows; recovers from a failed device"),
    (STEP, 2, "Sides::run", "llama/sides.cc", "hands over what the device lacks"),
    (STEP, 2, "Forward::run", "llama/forward.cc", "prompt and head, or decode"),
    (STEP, 3, "Forward::run_stage", "llama/forward.cc", "one dispatch"),
    (STEP, 4, "CpuExecutable::submit", "device/cpu/cpu_device.cc", "or an NPU's: moves rows, hands over"),
    (STEP, 5, "Interpreter::run", "device/cpu/interpreter.cc", "launch by launch"),
    (STEP, 4, "CpuExecutable::wait", "device/cpu/cpu_device.cc", "a Completion: times, bytes, launches"),
    (STEP, 4, "share_of", "trace/counters.cc", "each sequence's part, by rows"),
    (STEP, 1, "Job::take", "engine/job.cc", "the logits of a row"),
    (STEP, 2, "Sampler::sample", "engine/sampler.cc", "logits become the next token"),
    (STEP, 2, "TextStream::push", "engine/job.h", "up to a stop string"),
    (STEP, 3, "Detokenizer::push", "text/tokenizer/tokenizer.cc", "token becomes text, whole characters"),
    (END, 0, "Job::end", "engine/job.cc", "the answer and its receipt"),
    (END, 1, "add_execution", "engine/recording.cc", "the sequence's counters"),
    (END, 1, "PrefixCache::keep", "engine/prefix_cache.cc", "pages stay for the next request"),
]

STYLE = """
  .ground { fill: #ffffff } .box { fill: #eef3f8; stroke: #6b8299; stroke-width: 1.2 }
  .band { fill: #f6f4ee; stroke: #d8d2c2 } .line { fill: none; stroke: #50687f; stroke-width: 1.5 }
  .tip { fill: #50687f } .halo { fill: none; stroke: #ffffff; stroke-width: 5 }
  text { fill: #1b2733; font: 14px "DejaVu Sans", Verdana, sans-serif } .dim { fill: #50606f }
  .name { font-weight: bold; font-size: 16px } .small { font-size: 12.5px }
  .code { font: bold 13.5px "DejaVu Sans Mono", Menlo, Consolas, monospace }
  .file { font: 12px "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #50606f }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #161b22 } .box { fill: #22303e; stroke: #7d97b0 } .band { fill: #1c2229; stroke: #39434d }
    .line { stroke: #9db4ca } .tip { fill: #9db4ca } .halo { stroke: #161b22 }
    text { fill: #e8edf2 } .dim, .file { fill: #aab7c3 }
  }
"""


def fail(message):
    sys.exit(f"draw_layers.py: {message}")


def drawing(height, title, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="{escape(title)}">')
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>'
    tip = ('<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
           '<path class="tip" d="M0 1 L10 5 L0 9 z"/></marker></defs>')
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", tip, ground, *parts, "</svg>"]) + "\n"


def text(x, y, words, kind, anchor="start"):
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x, y, width, height):
    return f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def arrow(path):
    return f'<path class="halo" d="{path}"/><path class="line" d="{path}" marker-end="url(#tip)"/>'


# The folders.


def sources():
    return [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".cc", ".h")]


def folder_of(path):
    return path.relative_to(ROOT / "src").parts[0]


def includes():
    edges = {folder_of(path): set() for path in sources()}
    for path in sources():
        for target in re.findall(r'^\s*#\s*include\s+"([^"/]+)/', path.read_text(), re.M):
            if target in edges and target != folder_of(path):
                edges[folder_of(path)].add(target)
    return edges


def reach(edges, folder):
    """Everything below a folder; a folder that includes itself by a detour is an error."""
    seen, queue = set(), list(edges[folder])
    while queue:
        below = queue.pop()
        if below == folder:
            fail(f"src/{folder} includes itself by a detour")
        if below not in seen:
            seen.add(below)
            queue.extend(edges[below])
    return seen


def reduced(edges):
    return {folder: sorted(target for target in targets
                           if not any(target in reach(edges, other) for other in targets if other != target))
            for folder, targets in edges.items()}


def level(edges, folder):
    return 1 + max((level(edges, below) for below in edges[folder]), default=-1)


def line_counts(committed):
    counts = Counter()
    for path in sources():
        counts[folder_of(path)] += path.read_text().count("\n")
    known = {name: int(number) for name, number in re.findall(r"<!-- ([a-z]+): (\d+) -->", committed)}
    result = {}
    for folder, count in counts.items():
        step = 10 ** max(1, len(str(count)) - 2)
        stays = folder in known and abs(known[folder] - count) <= count / 10
        result[folder] = known[folder] if stays else round(count / step) * step
    return result


def edge_path(folder, target, y1, y2, height):
    (_, middle, width), (_, other, other_width) = FOLDERS[folder], FOLDERS[target]
    within = [max(middle - width / 2, other - other_width / 2) + 16, min(middle + width / 2, other + other_width / 2) - 16]
    narrow = middle if width <= other_width else other
    if within[0] <= narrow <= within[1]:  # one stands above the other
        return f"M{narrow:g} {y1:g} V{y2 - 2:g}"
    side = 1 if other > middle else -1
    x1, x2 = middle + 40 * side, other - 40 * side
    if abs(x2 - x1) > 5 * (y2 - y1):  # too flat for the top of a box
        x1, x2, y2 = middle + 90 * side, other - (other_width / 2 + 2) * side, y2 + height / 2
        return f"M{x1:g} {y1:g} C{x1:g} {y2:g} {x1:g} {y2:g} {x2:g} {y2:g}"
    bend = (y2 - y1) * 0.55
    return f"M{x1:g} {y1:g} C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2 - 2:g}"


def layers(committed):
    edges = includes()
    for folder in edges:
        if folder not in FOLDERS:
            fail(f"src/{folder} has no place in FOLDERS")
    counts = line_counts(committed)
    levels = {folder: level(edges, folder) for folder in edges}
    pitch, height, top = 98, 54, 16
    y_of = {folder: top + (max(levels.values()) - levels[folder]) * pitch for folder in edges}
    parts = []
    for folder, targets in reduced(edges).items():
        for target in targets:
            parts.append(arrow(edge_path(folder, target, y_of[folder] + height, y_of[target], height)))
    for folder in sorted(edges, key=lambda name: (y_of[name], FOLDERS[name][1])):
        holds, middle, width = FOLDERS[folder]
        x, y = middle - width / 2, y_of[folder]
        parts += [f"<!-- {folder}: {counts[folder]} -->", box(x, y, width, height),
                  text(x + 12, y + 22, folder, "name"),
                  text(x + width - 12, y + 22, f"{counts[folder]:,}".replace(",", " "), "small dim", "end"),
                  text(x + 12, y + 42, holds, "small")]
    bottom = top + max(levels.values()) * pitch + height
    parts.append(text(WIDTH / 2, bottom + 26, "A number counts lines; an arrow means: includes. What is below what is included may be included too.",
                      "small dim", "middle"))
    return drawing(bottom + 42, "The folders of src/ and what they include", parts)


# The way of a token.


def has_function(source, function):
    if re.search(rf"\b{re.escape(function)}\(", source):
        return True
    owner, _, name = function.rpartition("::")
    found = re.search(rf"\b(?:class|struct) {owner}\b", source) if owner else None
    return found is not None and re.search(rf"\b{name}\(", source[found.end():]) is not None


def check_hops():
    callers = {}
    for _, depth, function, file, _ in HOPS:
        path = ROOT / "src" / file
        if not path.exists():
            fail(f"there is no src/{file}")
        if not has_function(path.read_text(), function):
            fail(f"src/{file} has no {function}")
        if depth > 0:
            caller, caller_file = callers[depth - 1]
            name = function.split("::")[-1]
            if not re.search(rf"\b{name}\(", (ROOT / "src" / caller_file).read_text()):
                fail(f"src/{caller_file}, where {caller} is, does not call {function}")
        callers[depth] = (function, file)


def end_trunk(trunks, depth):
    x, top, bottom = trunks.pop(depth, (0, 0, None))
    return [] if bottom is None else [f'<path class="line" d="M{x} {top} V{bottom:g}"/>']


def token():
    check_hops()
    pitch, height, indent, left, right = 45, 33, 30, 62, 646
    bands, boxes, lines = [], [], []
    y, band_top, last_band = 0, 0, None
    trunks = {}  # by depth: where the calls of the last such box leave it, and how far down they go

    def close(bottom):
        bands.append(f'<rect class="band" x="12" y="{band_top}" width="{WIDTH - 24}" height="{bottom - band_top}" rx="8"/>')
        bands.append(text(left + indent, band_top + 21, last_band, "small dim"))

    places = {}
    for band, depth, function, file, meaning in HOPS:
        if band != last_band:
            if last_band is not None:
                close(y + 2)
                y += 14
            band_top, last_band = max(y, 12), band
            y = band_top + 32
        x, middle = left + depth * indent, y + height / 2
        boxes += [box(x, y, right - x, height), text(x + 12, middle + 5, function, "code"),
                  text(right - 12, middle + 4.5, "src/" + file, "file", "end"),
                  text(right + 16, middle + 4.5, meaning, "small")]
        if depth > 0:
            trunks[depth - 1][2] = middle + 4
            lines.append(f'<path class="line" d="M{x - 16} {middle + 4:g} H{x - 2}" marker-end="url(#tip)"/>')
        lines += end_trunk(trunks, depth)
        trunks[depth] = [x + 14, y + height, None]
        places[function] = (x, middle)
        y += pitch
    close(y + 2)
    for depth in list(trunks):
        lines += end_trunk(trunks, depth)
    # From the chosen token back to the next run.
    first, last = next(hop for hop in HOPS if hop[0] == STEP), [hop for hop in HOPS if hop[0] == STEP and hop[1] == 1][-1]
    (x, begin), (_, end) = places[first[2]], places[last[2]]
    lines.append(f'<path class="line" stroke-dasharray="6 4" d="M{x - 1} {end - 9:g} H36 V{begin - 9:g} H{x - 2}" '
                 'marker-end="url(#tip)"/>')
    return drawing(y + 14, "A token's way through the functions", [*bands, *lines, *boxes])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the drawings are old")
    check = parser.parse_args().check
    stale = []
    for name, draw in (("layers.svg", layers), ("token.svg", lambda _: token())):
        path = ROOT / "docs" / name
        committed = path.read_text() if path.exists() else ""
        wanted = draw(committed)
        if wanted == committed:
            continue
        stale.append(name)
        if not check:
            path.write_text(wanted)
    if check and stale:
        fail(f"{' and '.join(stale)} in docs/ no longer show the code; run tools/draw_layers.py")
    print("drawings hold" if not stale else "written: " + ", ".join(stale))


if __name__ == "__main__":
    main()
