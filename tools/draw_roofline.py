#!/usr/bin/env python3
"""Writes docs/roofline-avx2.svg and docs/roofline-avx512.svg: what kernels reach of what memory and arithmetic allow.

The data is in bench/results/roofline, one file per instruction set, rows of

    tyto bench -m MODEL.gguf -p 13,128,512 -n 64 --isa NAME --peak -o jsonl

for each type of weights. A row is a point: operations for each byte that is read, and operations a second. Above them are
the highest read bandwidth and the highest rates of arithmetic that any of these processes measured. With --check nothing is
written: exit code 1 when the files are not what would be written.
"""
import argparse
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from draw_layers import drawing, text

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "bench" / "results" / "roofline"
PICTURES = {"roofline-avx2.svg": ("avx2", DATA / "avx2.jsonl"),
            "roofline-avx512.svg": ("avx512_bf16", DATA / "avx512_bf16.jsonl")}

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 74, 650, 56, 500, 556
PANEL, PANEL_COLUMN = 684, 60  # the table beside the plot
TYPES = ("bf16", "q8_0", "q4_0", "q4_k")
TESTS = ("tg64", "pp13", "pp128", "pp512")
# One colour a type, told apart by most eyes on light and on dark ground; one shape a test, drawn around 0, 0.
COLOURS = dict(zip(TYPES, ("#d55e00", "#0072b2", "#009e73", "#b0609a")))
SHAPES = dict(zip(TESTS, ('<circle r="5.5"/>', '<path d="M0 -7 L6.5 5 L-6.5 5 z"/>',
                          '<rect x="-5" y="-5" width="10" height="10"/>', '<path d="M0 -7.5 L7.5 0 L0 7.5 L-7.5 0 z"/>')))
STYLE = """
  .grid { stroke: #d5dde5; stroke-width: 1 } .roof { fill: none; stroke: #1b2733; stroke-width: 2 }
  .tick { font-size: 12px } .points > g { fill-opacity: .85; stroke: #ffffff; stroke-width: 1 } .shape { fill: #50606f }
  @media (prefers-color-scheme: dark) {
    .grid { stroke: #2f3943 } .roof { stroke: #e8edf2 } .points > g { stroke: #161b22 } .shape { fill: #aab7c3 }
  }
"""


def fail(message):
    sys.exit(f"draw_roofline.py: {message}")


@dataclass
class Point:
    weights: str
    test: str
    intensity: float  # operations for each byte
    gflop_per_s: float
    arithmetic: str  # "int8", "bf16", "f32"


@dataclass
class Roofline:
    isa: str
    processor: str
    threads: str
    gb_per_s: float
    gflop_per_s: dict  # by arithmetic
    points: list

    def roof(self, point):
        return min(self.gb_per_s * point.intensity, self.gflop_per_s[point.arithmetic])


def rows_of(path):
    if not path.is_file():
        fail(f"{path} does not exist; --help says how to make it")
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    except ValueError as error:
        fail(f"{path} is no file of JSON lines: {error}")


def point_of(path, row):
    """And the row's own peaks: what its process measured."""
    try:
        measured = re.search(r"with (\d+) threads?: .*?(\w+) arithmetic \((\w+)\)", row["peak"] or "")
        if not measured:
            fail(f"{path}: a row of {row['test']} has no peak; measure with --peak")
        weights = row["model_type"].split()[-1]
        point = Point(weights, row["test"], row["flops_per_token"] / row["bytes_per_token"],
                      float(row["gflop_per_s"]), measured[2])
        return point, {"threads": measured[1], "isa": measured[3], "processor": row["cpu_info"],
                       "gb": float(row["peak_gb_per_s"]), "gflop": float(row["peak_gflop_per_s"])}
    except (KeyError, TypeError, ZeroDivisionError) as error:
        fail(f"{path}: not a row of `tyto bench --peak -o jsonl` with work done on the CPU ({error!r})")


def read(isa, path):
    found = [point_of(path, row) for row in rows_of(path)]
    places = [(point.weights, point.test) for point, _ in found]
    if sorted(places) != sorted((weights, test) for weights in TYPES for test in TESTS):
        fail(f"{path}: wanted is one row of each of {', '.join(TYPES)} with each of {', '.join(TESTS)}")
    for name in ("threads", "isa", "processor"):
        if len({peaks[name] for _, peaks in found}) != 1:
            fail(f"{path}: rows differ in {name}")
    if (measured := found[0][1]["isa"]) != isa:
        fail(f"{path}: measured with --isa {measured}")
    arithmetic = {}
    for point, peaks in found:
        arithmetic[point.arithmetic] = max(arithmetic.get(point.arithmetic, 0), peaks["gflop"])
    first = found[0][1]
    return Roofline(isa, first["processor"], first["threads"], max(peaks["gb"] for _, peaks in found), arithmetic,
                    [point for point, _ in found])


class Axes:
    """Logarithmic, from the last round number below the data to the first above."""

    def __init__(self, line):
        self.x = bounds([point.intensity for point in line.points])
        self.y = bounds([point.gflop_per_s for point in line.points] + list(line.gflop_per_s.values()))

    def place(self, intensity, gflop):
        return (LEFT + (RIGHT - LEFT) * share(intensity, self.x), BOTTOM - (BOTTOM - TOP) * share(gflop, self.y))


def share(value, ends):
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def round_numbers(low, high):
    """1, 2, 5, 10, 20, ... from low to high."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    return [n for n in (digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)) if low <= n <= high]


def bounds(values):
    if min(values) <= 0:
        fail("a rate or an intensity is not above 0")
    # The margin keeps shapes and words off the frame.
    return round_numbers(min(values) / 10, min(values) / 1.1)[-1], round_numbers(max(values) * 1.15, max(values) * 20)[0]


def grid(axes):
    lines = []
    for x in round_numbers(*axes.x):
        place = axes.place(x, axes.y[0])[0]
        lines += [f'<path class="grid" d="M{place:.1f} {TOP} V{BOTTOM}"/>',
                  text(round(place, 1), BOTTOM + 18, f"{x:g}", "dim tick", "middle")]
    for y in round_numbers(*axes.y):
        place = axes.place(axes.x[0], y)[1]
        lines += [f'<path class="grid" d="M{LEFT} {place:.1f} H{RIGHT}"/>',
                  text(LEFT - 8, round(place + 4, 1), f"{y:g}", "dim tick", "end")]
    upwards = text(0, 0, "10⁹ operations a second", "small", "middle")
    return [*lines, text((LEFT + RIGHT) / 2, BOTTOM + 40, "operations for each byte read", "small", "middle"),
            f'<g transform="translate(22 {(TOP + BOTTOM) / 2:g}) rotate(-90)">{upwards}</g>']


def roofs(line, axes):
    """The slope of memory up to the highest arithmetic, and a level for each kind of arithmetic."""
    levels = sorted(line.gflop_per_s.items(), key=lambda item: item[1])
    begin = max(axes.x[0], axes.y[0] / line.gb_per_s)
    end = min(axes.x[1], levels[-1][1] / line.gb_per_s)
    (x1, y1), (x2, y2) = axes.place(begin, begin * line.gb_per_s), axes.place(end, end * line.gb_per_s)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    middle = [(a + b) / 2 for a, b in ((x1, x2), (y1, y2))]
    lines = [f'<path class="roof" d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f}"/>',
             f'<g transform="translate({middle[0]:.1f} {middle[1]:.1f}) rotate({angle:.2f})">'
             + text(0, -8, f"memory: {line.gb_per_s:.1f} GB/s", "small", "middle") + "</g>"]
    for name, gflop in levels:
        x, y = axes.place(min(axes.x[1], gflop / line.gb_per_s), gflop)
        lines += [f'<path class="roof" d="M{x:.1f} {y:.1f} H{RIGHT}"/>',
                  text(RIGHT - 6, round(y - 7, 1), f"{name}: {gflop:.0f}", "small", "end")]
    return lines


def points(line, axes):
    lines = ['<g class="points">']
    for point in line.points:
        x, y = axes.place(point.intensity, point.gflop_per_s)
        lines.append(f'<g transform="translate({x:.1f} {y:.1f})" fill="{COLOURS[point.weights]}"><title>{point.weights} '
                     f'{point.test}: {point.gflop_per_s:.1f}, {100 * point.gflop_per_s / line.roof(point):.0f} % of the roof'
                     f'</title>{SHAPES[point.test]}</g>')
    return [*lines, "</g>"]


def table(line):
    """Legend and shares in one: a row a type, a column a test."""
    columns = {test: PANEL + 104 + PANEL_COLUMN * number for number, test in enumerate(TESTS)}
    lines = [text(PANEL, TOP + 14, "share of the roof above the point", "small")]
    for test, x in columns.items():
        lines += [f'<g class="shape" transform="translate({x - 12:g} {TOP + 44})">{SHAPES[test]}</g>',
                  text(x, TOP + 70, test, "dim tick", "end")]
    shares = {(point.weights, point.test): point.gflop_per_s / line.roof(point) for point in line.points}
    for number, weights in enumerate(TYPES):
        y = TOP + 98 + 28 * number
        lines += [f'<rect x="{PANEL}" y="{y - 10}" width="11" height="11" fill="{COLOURS[weights]}"/>',
                  text(PANEL + 18, y, weights, "small")]
        lines += [text(x, y, f"{100 * shares[weights, test]:.0f} %", "small", "end") for test, x in columns.items()]
    return lines


def picture(isa, path):
    line = read(isa, path)
    axes = Axes(line)
    threads = f"{line.threads} thread{'s' if line.threads != '1' else ''}"
    title = f"Roofline of --isa {isa}"
    head = text(LEFT, 32, title, "name") + text(RIGHT, 32, f"{line.processor}, {threads}", "small dim", "end")
    return drawing(HEIGHT, f"{title}, {threads}", [f"<style>{STYLE}</style>", head, *grid(axes), *roofs(line, axes),
                                                   *points(line, axes), *table(line)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a picture is not of its data")
    check = parser.parse_args().check
    stale = []
    for name, (isa, path) in PICTURES.items():
        file = ROOT / "docs" / name
        wanted = picture(isa, path)
        if file.exists() and file.read_text() == wanted:
            continue
        stale.append(name)
        if not check:
            file.write_text(wanted)
    if check and stale:
        fail(f"{' and '.join(stale)} in docs/ do not show the data; run tools/draw_roofline.py")
    print("pictures hold" if not stale else "written: " + ", ".join(stale))


if __name__ == "__main__":
    main()
