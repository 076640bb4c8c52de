#!/usr/bin/env python3
"""Holds `tyto plan` against published rows that nothing was fitted to.

Usage: compare_cost_model.py TYTO [--rows] [--write | --check]

Prints the errors by model, and which share of the rows the stated errors cover, by class. --rows prints each row.
--write puts both tables, and those of data/npu-machines.json, into the pages that have a place for them; --check fails
where a page has others, or where the errors of a class hold for less than nine rows of ten.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "cost-model.md", ROOT / "bench" / "results" / "cost-model" / "README.md")
LEAST_COVERAGE = 0.9
FEWEST_ROWS = 10  # a class of fewer says nothing about nine of ten
TWO_IMAGES = {"SmolLM2-1.7B", "Qwen3-0.6B", "Qwen3-1.7B"}  # for a token's layer; the others have five
FUSION = {"air-bf16": "block", "air-q4nx": "token"}

STATED = (
    ("matmul", "GEMM", "36 GEMMs of 2048 rows, each by laws fitted without it, tile and kind by rule, against the fastest published"),
    ("small_matmul", "GEMM below 512 rows", "24 GEMMs of 64–256 rows, never fitted"),
    ("bandwidth", "weights streamed", "GEMV, held out by K"),
    ("attention", "attention on the NPU", "held out, each shape"),
    ("overhead", "dispatches, launches, the host", "IRON on two machines, in two versions; also the whole of one dispatch per operator"),
    ("repeat", "the same pipeline again", "Llama-3.2-1B's two publications"),
    ("profile", "balanced profile", "what two factors leave of four rows"),
    ("q4nx_decode", "4-bit decode, whole", "held out by model; builds and machines that were not fitted"),
    ("flm_prefill", "FastFlowLM prefill, whole", "held out by model"),
    ("flm_decode", "FastFlowLM decode, whole", "held out by model"),
)


def plan_of(tyto, shape, machine, kernels, tokens, *more):
    command = [tyto, "plan", "--json", "--shape", shape.lower(), "--machine", machine, "--kernels", kernels, "--fusion",
               FUSION[kernels], "--prompt-tokens", str(tokens), *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)[0]


def planned(tyto, rows):
    """Adds to each row what the plan says of it; one run of the program for rows that it answers together."""
    answers = {}
    for row in rows:
        key = (row["model"], row["machine"], row["kernels"], row["tokens"], "--profile", row["profile"])
        if key not in answers:
            answers[key] = plan_of(tyto, *key)
        plan, which = answers[key], "ttft" if row["phase"] == "prefill" else "tpot"
        row["error"] = plan[which + "_ms"] / row["ms"] - 1
        row["stated"] = plan[which + "_error_p90"]
        row["class"] = class_of(row)
    return rows


def class_of(row):
    kernels = row["kernels"].removeprefix("air-")
    if row["phase"] == "prefill" or kernels == "q4nx":
        return f"{kernels} {row['phase']}"
    return f"{kernels} decode, {2 if row['model'] in TWO_IMAGES else 5} images a layer"


def median(values):
    return sorted(values)[len(values) // 2]


def is_covered(row):
    return abs(row["error"]) <= row["stated"]


def span(values):
    low, high = f"{min(values):.0%}"[:-1], f"{max(values):.0%}"[:-1]
    return f"{low} %" if low == high else f"{low}–{high} %"


def groups(rows, key):
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return sorted(found.items())


def comparison(rows):
    covered = sum(map(is_covered, rows))
    errors = [row["error"] for row in rows]
    return (f"{len(rows)} | {median(list(map(abs, errors))):.1%} | {max(errors, key=abs):+.1%} | "
            f"{span([row['stated'] for row in rows])} | {covered}").replace("%", " %").replace("  %", " %")


def class_table(rows):
    lines = ["| class | rows | median error | worst | stated | covered |", "|---|---|---|---|---|---|"]
    lines += [f"| {name} | {comparison(group)} |" for name, group in groups(rows, lambda row: row["class"])]
    return lines + [f"| **all** | {comparison(rows)} |"]


def model_table(rows):
    lines = ["| model | kernels | phase | rows | median error | worst | stated | covered |", "|---|---|---|---|---|---|---|---|"]
    for key, group in groups(rows, lambda row: (row["model"].lower(), row["kernels"], row["phase"])):
        lines.append(f"| {' | '.join(key)} | {comparison(group)} |")
    return lines


def fitted_table():
    """The rows that were fitted or compared by tools/fit_cost_model.py, which has them."""
    lines = ["| model | kernels | what | rows | median error | worst | held out: median | worst |", "|---|---|---|---|---|---|---|---|"]
    for row in json.loads((ROOT / "data" / "npu-machines.json").read_text())["by_model"]:
        held = f"{row['held_out_median']:.1%} | {row['held_out_worst']:+.1%}" if "held_out_median" in row else "– | –"
        lines.append(f"| {row['model']} | {row['kernels']} | {row['what']} | {row['rows']} | {row['median']:.1%} | "
                     f"{row['worst']:+.1%} | {held} |".replace("%", " %"))
    return lines


def stated_table():
    p90 = json.loads((ROOT / "data" / "npu-machines.json").read_text())["parameters"]["rel_error_p90"]
    lines = ["| error of | p90 | from |", "|---|---|---|"]
    return lines + [f"| {what} | {p90[key]:.1%} | {source} |".replace("% |", " % |") for key, what, source in STATED]


def short_prompt_table(tyto):
    lines = ["| model | kernels | 256 rows | 512 rows | 2048 rows | MLIR-AIR's host, 2048 rows |", "|---|---|---|---|---|---|"]
    for model, kernels in (("Llama-3.2-1B", "air-bf16"), ("Llama-3.2-1B", "air-q4nx"), ("Llama-3.2-3B", "air-bf16"), ("Qwen3-1.7B", "air-bf16")):
        plans = [plan_of(tyto, model, "strix", kernels, 13, "--overhead", "native", "--prompt-rows", rows) for rows in ("256", "512", "2048")]
        cells = [f"{plan['ttft_ms']:.0f} ± {plan['ttft_error_p90']:.0%}".replace("%", " %") for plan in plans]
        lines.append(f"| {model} | {kernels} | {' | '.join(cells)} | {plans[-1]['published_ttft_ms']:.0f} |")
    return lines


def begin_of(name):
    return f"<!-- {name}: tools/compare_cost_model.py -->\n"


def with_tables(page, tables):
    """The page with those of the tables that it has a place for."""
    for name, lines in tables.items():
        head, begin, rest = page.partition(begin_of(name))
        if begin:
            _, end, tail = rest.partition(f"<!-- end of {name} -->")
            page = head + begin + "\n".join(lines) + "\n" + end + tail
    return page


def failures(rows, pages, tables):
    found = [f"{path.relative_to(ROOT)} has other tables: run {Path(__file__).name} TYTO --write"
             for path, page in pages.items() if with_tables(page, tables) != page]
    found += [f"no page has a place for the table of {name}" for name in tables
              if not any(begin_of(name) in page for page in pages.values())]
    for name, group in [*groups(rows, lambda row: row["class"]), ("all", rows)]:
        share = sum(map(is_covered, group)) / len(group)
        if share < LEAST_COVERAGE and len(group) >= FEWEST_ROWS:
            found.append(f"{name}: the stated errors cover {share:.0%} of {len(group)} rows, not 90 %")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tyto", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--rows", action="store_true", help="print each row")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--write", action="store_true", help="write the tables into the pages")
    doing.add_argument("--check", action="store_true", help="fail if a page has others, or the errors do not hold")
    options = parser.parse_args()
    rows = planned(options.tyto, json.loads((ROOT / "data" / "npu-unseen.json").read_text())["rows"])
    tables = {"short prompts": short_prompt_table(options.tyto), "stated errors": stated_table(), "fitted rows by model": fitted_table(), "unseen rows by class": class_table(rows),
              "unseen rows by model": model_table(rows)}
    if options.rows:
        for row in sorted(rows, key=lambda row: abs(row["error"]) / row["stated"]):
            print(f"{'  ' if is_covered(row) else '! '}{row['id']:<40} {row['ms']:>9.1f} ms {row['error']:>+7.1%}, stated {row['stated']:.1%}")
    print("\n".join(tables["unseen rows by class"] + [""] + tables["unseen rows by model"]))
    pages = {path: path.read_text() for path in PAGES}
    if options.write:
        for path, page in pages.items():
            path.write_text(with_tables(page, tables))
    found = failures(rows, pages, tables) if options.check else []
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
