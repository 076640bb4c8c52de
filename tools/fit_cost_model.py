#!/usr/bin/env python3
"""Fits the NPU cost model to a table of published measurements.

Usage: fit_cost_model.py --calibration FILE [--cpp FILE] [--json FILE] [--check]

Prints a residual table and a leave-one-model-out table; --cpp and --json write the parameters, with
the ids of the measurements they came from. docs/cost-model.md explains the laws. Standard library only.
"""
import argparse
import json
import math
import re
import sys
from pathlib import Path

from cost_parameters_cpp import ELEMENTWISE_GB_S, cpp_text
from relative_fit import errors, leave_one_group_out, predict, quantile, relative_fit

# Dimensions from the models' config.json: layers, emb, hidden, heads, kv_heads, head_dim, vocab.
MODELS = {
    "Llama-3.2-1B": (16, 2048, 8192, 32, 8, 64, 128256),
    "Llama-3.2-3B": (28, 3072, 8192, 24, 8, 128, 128256),
    "Qwen3-0.6B": (28, 1024, 3072, 16, 8, 128, 151936),
    "Qwen3-1.7B": (28, 2048, 6144, 16, 8, 128, 151936),
    "Qwen3-4B": (36, 2560, 9728, 32, 8, 128, 151936),
    "Qwen2.5-3B": (36, 2048, 11008, 16, 2, 128, 151936),
    "Qwen2.5-7B": (28, 3584, 18944, 28, 4, 128, 152064),
}
GEMM_C_BYTES = {"fused-cast": 10, "drain": 2, "direct": 2}  # per value of C: f32 out and in, then bf16; or bf16 only
Q4_BYTES = 0.625  # per weight: 4 bits, and a bf16 scale and minimum per 32

# Facts of the public fact sheets that no row of the table carries: the driver's own latency per machine.
NOOP_US = {"strix": 50.0, "strix-halo": 56.0, "krackan": 63.0}
HALO_FLM_1B_TOK_S = 57.9  # FastFlowLM community table, 1B at 1k context
IRON_PROFILER = 4.40 / 3.26  # how much IRON's profiler slows the run its per-operator times come from
IRON_DISPATCHES = 179


def layer_values(model):
    layers, emb, hidden, heads, kv_heads, dim, _ = MODELS[model]
    return layers * (emb * dim * 2 * (heads + kv_heads) + 3 * emb * hidden)


def q4_gb(model):
    """Streamed per token; the head is padded to whole vocabulary chunks of 18432 rows."""
    _, emb, *_, vocab = MODELS[model]
    return (layer_values(model) + math.ceil(vocab / 18432) * 18432 * emb) * Q4_BYTES / 1e9


def tile_of(row):
    numbers = re.match(r"tile m/kl2/kl1/n (\d+)/(\d+)/(\d+)/(\d+); herd \[(\d+), (\d+)\]", row["notes"])
    return tuple(map(int, numbers.groups()))


def gemm_points(rows, kind):
    """ms = floor + FLOP/R + C/B + steps * t; a step is one L2 block of K for one whole-array tile."""
    points = []
    for row in rows:
        if row.get("kernel") != "GEMM " + kind or (kind == "direct" and "f32out" in row["id"]):
            continue
        m, k, n = row["M"], row["K"], row["N"]
        tile_m, k_l2, _, tile_n, herd_m, herd_n = tile_of(row)
        steps = max(1, m / (tile_m * herd_m)) * max(1, n / (tile_n * herd_n)) * k / k_l2
        flop = 2 * m * k * n
        points.append(([1, flop * 32 / (herd_m * herd_n) / 1e9, m * n / 1e6, steps], flop / row["value"] / 1e9, row["id"]))
    return points


def gemv_points(rows):
    return [([1, row["M"] * row["K"] * 2 / 1e6], row["value"], row["id"]) for row in rows if row.get("kernel") == "GEMV"]


def attention_points(rows):
    points = []
    for row in rows:
        if str(row.get("kernel")).startswith("FlashAttention") and row["head_dim"] in (64, 128):
            blocks = row["heads_q"] * row["seq_len"] / 256 / 1e3
            terms = {64: [0, 0], 128: [0, 0]}
            terms[row["head_dim"]] = [blocks, blocks * row["seq_len"] / 1e3]
            points.append(([1] + terms[64] + terms[128], row["value"], row["id"]))
    return points


def fused_points(rows):
    points = []
    for row in rows:
        if row["id"].startswith("sweep-") and row["model"] in MODELS:
            layers, dim = MODELS[row["model"]][0], MODELS[row["model"]][5]
            work = layers * row["ctx"] / 1e6
            points.append(([1, q4_gb(row["model"]), work * (dim == 64), work * (dim == 128)], row["value"], row["id"]))
    return points


def flm_points(rows):
    decode, prefill = [], []
    for row in rows:
        if "FastFlowLM" not in row["software"] or row["model"] not in MODELS:
            continue
        layers, emb, _, heads, _, dim, vocab = MODELS[row["model"]]
        if row["phase"] == "decode":
            weights = (layer_values(row["model"]) + emb * vocab) * Q4_BYTES / 1e9
            work = layers * row["ctx"] / 1e6 * math.sqrt(dim / 128)
            llama = row["model"].startswith("Llama")
            features = [weights, layers * llama, layers * (not llama), work * llama, work * (not llama)]
            decode.append((features, 1000 / row["value"], row["id"]))
        else:
            n = row["seq_len"]
            features = [layers, n * layer_values(row["model"]) / 1e9, n * n * layers * heads * dim / 1e12]
            prefill.append((features, n / row["value"] * 1000, row["id"]))
    return decode, prefill


class Fit:
    """Everything fitted so far: parameters, where they came from, and residuals by kernel set."""

    def __init__(self, rows):
        self.rows = rows
        self.value = {row["id"]: row["value"] for row in rows}
        self.model = {row["id"]: row["model"] for row in rows}
        self.phase = {row["id"]: row["phase"] for row in rows}
        self.parameters, self.provenance = {}, {}
        self.residuals, self.held_out = [], []  # (kernel set, law, id, relative error)

    def law(self, kernels, name, points, group_of):
        coefficients = relative_fit(points)
        self.residuals += [(kernels, name, label, e) for e, label in errors(points, coefficients)]
        self.held_out += [(kernels, name, label, e) for e, label in leave_one_group_out(points, group_of)]
        self.provenance[name] = sorted(label for _, _, label in points)
        return coefficients

    def point(self, kernels, name, label, predicted):
        self.residuals.append((kernels, name, label, predicted / self.value[label] - 1))
        self.provenance.setdefault(name, []).append(label)


def fit_gemms(fit):
    by_shape = lambda label: label.split("-")[3]
    for kind, written in GEMM_C_BYTES.items():
        # Small drain shapes (a robot's action head, 64-256 rows) run on parts of the array: not a prefill's shapes.
        points = [p for p in gemm_points(fit.rows, kind) if int(by_shape(p[2]).split("x")[0]) >= 512]
        floor, per_gflop, per_mvalue, step = fit.law("air-bf16", "gemm " + kind, points, by_shape)
        fit.parameters["gemm " + kind] = {"floor_us": floor * 1e3, "tflops": 1 / per_gflop,
                                          "c_bytes": written, "c_gb_s": written / per_mvalue, "step_us": step * 1e3}


def fit_kernels(fit):
    fit_gemms(fit)
    floor, per_mb = fit.law("air-bf16", "gemv", gemv_points(fit.rows), lambda label: label.split("x")[1])
    fit.parameters["gemv"] = {"floor_us": floor * 1e3, "gb_s": 1 / per_mb}
    points = attention_points(fit.rows)
    found = fit.law("air-bf16", "flash attention", points, lambda label: label)
    fit.parameters["attention"] = {"floor_us": found[0] * 1e3, "block64_us": found[1], "position64_ns": found[2],
                                   "block128_us": found[3], "position128_ns": found[4]}


def planned_tile(kind, k, n):
    """(m, k in L2, n) per core, by divisibility as in the registry; as tyto's gemm_tile and direct_gemm_ms."""
    tile_n = next(t for t in (128, 64, 32, 16, 8, 4, 2, 1) if n % (4 * t) == 0 or t == 1)
    if kind == "direct":
        return 64, next(t for t in (128, 64, 32) if k % t == 0 and t * n <= 1 << 21 or t == 32), min(64, tile_n)
    k_l2 = 64 if n > 8192 else next(t for t in (256, 128, 64, 32) if k % t == 0 or t == 32)
    return 32 if kind == "drain" else 64, k_l2, tile_n


def gemm_ms(fit, k, n, rows=2048, in_elf=True):
    """The cheapest kind for an LLM's GEMM; as tyto's best_gemm_ms."""
    best = []
    for kind in GEMM_C_BYTES:
        law = fit.parameters["gemm " + kind]
        tile_m, k_l2, tile_n = planned_tile(kind, k, n)
        steps = math.ceil(rows / (tile_m * 8)) * math.ceil(n / (tile_n * 4)) * math.ceil(k / k_l2)
        best.append(2 * rows * k * n / law["tflops"] / 1e9 + rows * n * law["c_bytes"] / law["c_gb_s"] / 1e6 +
                    steps * law["step_us"] / 1e3 + (0 if in_elf else law["floor_us"] / 1e3))
    return min(best)


def planned_gemm_errors(fit):
    """What the planner does: a shape that no law has seen, no knowledge of the published tile or kind, against the
    fastest published one."""
    fastest = {}
    for kind in GEMM_C_BYTES:
        for _, ms, label in gemm_points(fit.rows, kind):
            shape = tuple(map(int, label.split("-")[3].split("x")))
            if shape[0] == 2048:
                fastest[shape] = min(ms, fastest.get(shape, ms))
    found = []
    for shape, ms in fastest.items():
        without = Fit([row for row in fit.rows if (row.get("M"), row.get("K"), row.get("N")) != shape])
        fit_gemms(without)
        found.append(gemm_ms(without, shape[1], shape[2], in_elf=False) / ms - 1)
    return found


def small_gemm_errors(fit):
    """GEMMs of 64-256 rows, which no law was fitted to, by the drain law."""
    small = [p for p in gemm_points(fit.rows, "drain") if p[0][3] and int(p[2].split("-")[3].split("x")[0]) < 512]
    law = fit.parameters["gemm drain"]
    coefficients = [law["floor_us"] / 1e3, 1 / law["tflops"], law["c_bytes"] / law["c_gb_s"], law["step_us"] / 1e3]
    return [e for e, _ in errors(small, coefficients)]


def attention_ms(fit, heads, dim, n):
    law = fit.parameters["attention"]
    kind = "64" if dim <= 64 else "128"
    return law["floor_us"] / 1e3 + heads * n / 256 * (law["block%s_us" % kind] + law["position%s_ns" % kind] * n / 1e3) / 1e3


def fit_system_a(fit):
    """What the published Llama-3.2-1B pipeline adds to kernels measured alone."""
    v, name = fit.value, "air-l1b-bf16-"
    seq, emb, hidden, kv = 2048, 2048, 8192, 512
    per_mb = 1 / fit.parameters["gemv"]["gb_s"]
    call = fit.parameters["gemv"]["floor_us"] / 1e3
    qkv_mb, ffn_mb, head_mb = 2 * emb * (emb + 2 * kv) / 1e6, 2 * emb * (emb + 3 * hidden) / 1e6, 536.870912
    launch = (v[name + "decode-rms_gemv_rope-npurun"] - call - qkv_mb * per_mb) / 6
    head_gb_s = head_mb / (v[name + "lmhead-npurun"] - call - 8 * launch)
    mb = lambda width: seq * width * 2 / 1e6
    alone = {
        "rms_gemms_rope": (7, (2 * mb(emb) + 3 * mb(emb) + 3 * mb(kv)) / ELEMENTWISE_GB_S + gemm_ms(fit, emb, emb) + 2 * gemm_ms(fit, emb, kv)),
        "flash_attn": (1, attention_ms(fit, 32, 64, seq)),
        "o_ffn": (12, (8 * mb(emb) + 3 * mb(hidden)) / ELEMENTWISE_GB_S + gemm_ms(fit, emb, emb) + 2 * gemm_ms(fit, emb, hidden) + gemm_ms(fit, hidden, emb)),
    }
    points = [([kernels], v[name + "prefill-%s-npurun" % elf] - call - launches * launch, elf) for elf, (launches, kernels) in alone.items()]
    slowdown = relative_fit(points)[0]
    run = {elf: call + launches * launch + slowdown * kernels for elf, (launches, kernels) in alone.items()}
    for elf, ms in run.items():
        fit.point("air-bf16", "elf", name + "prefill-%s-npurun" % elf, ms)
    run["rms_gemv_rope"] = call + 6 * launch + qkv_mb * per_mb
    run["o_gemv_ffn"] = call + 3 * launch + ffn_mb * per_mb
    run["lm_head"] = call + 8 * launch + head_mb / head_gb_s
    fit.point("air-bf16", "elf", name + "decode-rms_gemv_rope-npurun", run["rms_gemv_rope"])
    fit.point("air-bf16", "elf", name + "decode-o_gemv_ffn-npurun", run["o_gemv_ffn"])
    fit.point("air-bf16", "elf", name + "lmhead-npurun", run["lm_head"])
    fit.parameters["elf"] = {"call_us": call * 1e3, "launch_us": launch * 1e3, "slowdown": slowdown, "head_gb_s": head_gb_s}
    fit_published_host(fit, run)


def fit_published_host(fit, run):
    v, name = fit.value, "air-l1b-bf16-"
    mib = 1.048576
    dispatch = (v[name + "decode-layer-wall"] - v[name + "decode-rms_gemv_rope-npurun"] - v[name + "decode-o_gemv_ffn-npurun"] -
                v[name + "decode-cpu-attn"]) / 2
    write = 44 * mib / sum(v[name + "prefill-%s-bowrite" % elf] for elf in ("rms_gemms_rope", "flash_attn", "o_ffn"))
    device = sum(v[name + "prefill-%s-npurun" % elf] for elf in ("rms_gemms_rope", "flash_attn", "o_ffn"))
    # Everything else inside a layer is numpy moving the 44 MiB it writes and the 4 MiB of K and V it keeps.
    layer = 48 * mib / (v[name + "prefill-layer-wall"] - device - 44 * mib / write - 3 * dispatch)
    edge = 16 * mib / (v[name + "prefill-embed"] + v[name + "prefill-finalnorm"])
    host = {"dispatch_us": dispatch * 1e3, "write_gb_s": write, "layer_gb_s": layer, "edge_gb_s": edge, "prompt_ms": 10.0,
            "attention_gflops": 4 * 2048 * 2048 / v[name + "decode-cpu-attn"] / 1e6}
    fit.parameters["published host"] = host
    ttft = 10 + 16 * mib / edge + 16 * (sum(run[e] for e in ("rms_gemms_rope", "flash_attn", "o_ffn")) + 3 * dispatch + 44 * mib / write +
                                        48 * mib / layer) + run["lm_head"] + dispatch
    tpot = 16 * (run["rms_gemv_rope"] + run["o_gemv_ffn"] + 2 * dispatch + v[name + "decode-cpu-attn"]) + run["lm_head"] + dispatch
    fit.point("air-bf16", "end to end", name + "prefill-ttft", ttft)
    fit.point("air-bf16", "end to end", "air-readme-llama-32-1b-prefill", ttft)
    fit.point("air-bf16", "end to end", name + "decode-tpot", tpot)
    fit.point("air-bf16", "end to end", "air-readme-llama-32-1b-decode", 1000 / tpot)
    # The q4nx prefill keeps its buffers on the device and skips masked attention blocks.
    rest = 10 + 16 * mib / edge + 16 * (run["rms_gemms_rope"] + run["o_ffn"] + 3 * dispatch) + run["lm_head"] + dispatch
    launched = (fit.parameters["elf"]["call_us"] + fit.parameters["elf"]["launch_us"]) / 1e3
    skip = ((v["air-q4nx-l1b-prefill"] - rest) / 16 - launched) / (run["flash_attn"] - launched)
    fit.parameters["elf"]["causal_skip"] = skip
    fit.point("air-q4nx", "end to end", "air-q4nx-l1b-prefill", rest + 16 * (launched + skip * (run["flash_attn"] - launched)))
    fit.a = {"ttft": ttft, "tpot": tpot, "q4nx_ttft": v["air-q4nx-l1b-prefill"]}


def fit_fused(fit):
    by_model = lambda label: label.split("-")[1]
    floor, per_gb, slope64, slope128 = fit.law("air-q4nx", "fused decode", fused_points(fit.rows), by_model)
    gemma = [([1, 34 * row["ctx"] / 1e6], row["value"], row["id"]) for row in fit.rows if row["id"].startswith("sweep-gemma3_4b")]
    slope256 = relative_fit(gemma)[1]
    fit.provenance["fused decode"] += [label for _, _, label in gemma]  # its slope only: Gemma has other norms
    fit.parameters["fused"] = {"floor_us": floor * 1e3, "gb_s": 1e3 / per_gb, "slope64_ns": slope64, "slope128_ns": slope128,
                               "slope256_ns": slope256}


def fit_flm(fit):
    by_model = lambda label: "-".join(label.split("-")[:3])
    decode, prefill = flm_points(fit.rows)
    per_gb, llama, qwen, llama_slope, qwen_slope = fit.law("flm-q4", "flm decode", decode, by_model)
    layer, per_gvalue, attention = fit.law("flm-q4", "flm prefill", prefill, by_model)
    fit.parameters["flm"] = {"gb_s": 1e3 / per_gb, "llama_layer_us": llama * 1e3, "qwen_layer_us": qwen * 1e3,
                             "llama_slope_ns": llama_slope, "qwen_slope_ns": qwen_slope, "prefill_layer_ms": layer,
                             "prefill_tflops": 2 / per_gvalue, "attention_tflops": 2e3 / attention}


def fit_op_level(fit):
    """IRON, one dispatch per operator. The median dispatch is B's own number; bandwidth from its two largest operators."""
    v = fit.value
    dispatch = v["iron-halo-dispatch-median"]
    layers, emb, hidden = 16, 2048, 8192
    gemv_mb = 2 * emb * (layers * (2 * emb + 1024) + 128256) / 65 / 1e6
    points = [([mb], v[label] / IRON_PROFILER - dispatch, label)
              for label, mb in (("iron-halo-op-gemv", gemv_mb), ("iron-halo-op-swiglu", 6 * emb * hidden / 1e6))]
    per_mb = relative_fit(points)[0]
    weights = 2 * (layer_values("Llama-3.2-1B") + emb * 128256) / 1e6
    decode = ["iron-halo-l1b-decode-13", "iron-halo-l1b-decode-128", "iron-halo-l1b-decode-2048"]
    gflops = fit.parameters["published host"]["attention_gflops"]
    cpu = lambda context: layers * 4 * 2048 * context / gflops / 1e6
    fixed = IRON_DISPATCHES * dispatch + weights * per_mb
    spare = sum(1000 / v[label] - fixed - cpu(int(label.split("-")[-1])) for label in decode) / 3 / layers
    for label in decode:
        fit.point("air-bf16-op", "op-level", label, 1000 / (fixed + layers * spare + cpu(int(label.split("-")[-1]))))
    values = layer_values("Llama-3.2-1B") / 1e9
    prefill = [([values, max(256, n) * values], v["iron-halo-l1b-prefill-%d" % n] - IRON_DISPATCHES * dispatch, "iron-halo-l1b-prefill-%d" % n)
               for n in (13, 128, 2048)]
    per_gvalue, per_token = relative_fit(prefill)
    for x, _, label in prefill:
        fit.point("air-bf16-op", "op-level", label, predict(x, [per_gvalue, per_token]) + IRON_DISPATCHES * dispatch)
    fit.op_level = {"dispatch": IRON_DISPATCHES * dispatch, "prefill_weights": values * per_gvalue, "prefill_flop": 2048 * values * per_token,
                    "weights": weights * per_mb, "decode": fixed + layers * spare + cpu(2048)}
    fit.provenance["op-level"] += ["iron-halo-dispatch-median", "iron-halo-op-gemv", "iron-halo-op-swiglu"]
    fit.parameters["op"] = {"dispatch_us": dispatch * 1e3, "gb_s": 1 / per_mb, "layer_us": spare * 1e3,
                            "prefill_weight_gb_s": 2 / per_gvalue * 1e3, "prefill_tflops": 2 / per_token}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def fit_machines(fit):
    """Factors against Strix Point = 1, from the same software on two machines."""
    v = fit.value
    clock = [fit.a["ttft"] / v["nightly-llama32_1b-ttft"], fit.a["q4nx_ttft"] / v["nightly-llama32_1b_q4nx-ttft"]]
    band = [fit.a["tpot"] * v["nightly-llama32_1b-decode"] / 1000,
            1000 / v["air-fused-l1b-dualchan"] / v["air-l1b-noinline-2k"],
            1000 / v["air-fused-l1b-nostair300"] / v["air-l1b-noinline-2k"]]
    krackan = (geometric_mean(clock), geometric_mean(band))
    halo_over_krackan = HALO_FLM_1B_TOK_S / v["flm-l32-1b-decode-1024"]
    balanced = (geometric_mean([v["nightly-llama32_1b-ttft"] / v["nightly-balanced-llama32_1b-prefill"],
                                v["nightly-llama32_1b_q4nx-ttft"] / v["nightly-balanced-llama32_1b_q4nx-prefill"]]),
                geometric_mean([v["nightly-balanced-llama32_1b-decode"] / v["nightly-llama32_1b-decode"],
                                v["nightly-balanced-llama32_1b_q4nx-decode"] / v["nightly-llama32_1b_q4nx-decode"]]))
    fit.parameters["machines"] = {
        "strix": {"clock": 1.0, "bandwidth": 1.0, "spread": 0.10, "noop_us": NOOP_US["strix"]},
        # Same array, same DPM table as Krackan's; no times of these kernels on it are published.
        "strix-halo": {"clock": krackan[0], "bandwidth": krackan[1] * halo_over_krackan, "spread": 0.20, "noop_us": NOOP_US["strix-halo"]},
        "krackan": {"clock": krackan[0], "bandwidth": krackan[1], "spread": 0.10, "noop_us": NOOP_US["krackan"]},
    }
    fit.parameters["balanced profile"] = {"clock": balanced[0], "bandwidth": balanced[1]}
    fit.provenance["machines"] = ["nightly-llama32_1b-ttft", "nightly-llama32_1b_q4nx-ttft", "nightly-llama32_1b-decode", "air-l1b-noinline-2k",
                                  "air-fused-l1b-dualchan", "air-fused-l1b-nostair300", "nightly-balanced-*", "flm-l32-1b-decode-1024"]
    fit.point("air-bf16", "krackan", "nightly-llama32_1b-ttft", fit.a["ttft"] / krackan[0])
    fit.point("air-bf16", "krackan", "nightly-llama32_1b-decode", 1000 / (fit.a["tpot"] / krackan[1]))
    fit.point("air-q4nx", "krackan", "nightly-llama32_1b_q4nx-ttft", fit.a["q4nx_ttft"] / krackan[0])
    law = fit.parameters["fused"]
    tpot = law["floor_us"] / 1e3 + q4_gb("Llama-3.2-1B") * 1e3 / law["gb_s"] + 16 * law["slope64_ns"] * 2048 / 1e6
    fit.point("air-q4nx", "krackan", "nightly-llama32_1b_q4nx-decode", 1000 / tpot)
    fit.point("air-q4nx", "krackan", "air-l1b-inline-2k", tpot)
    for label in ("air-fused-l1b-dualchan", "air-fused-l1b-nostair300", "air-q4nx-l1b-decode"):  # older builds of the kernel
        fit.point("air-q4nx", "strix", label, 1000 / (tpot * krackan[1]))
    fit.point("air-bf16", "balanced", "nightly-balanced-llama32_1b-prefill", fit.a["ttft"] / krackan[0] / balanced[0])
    fit.point("air-bf16", "balanced", "nightly-balanced-llama32_1b-decode", 1000 / fit.a["tpot"] * krackan[1] * balanced[1])
    fit.point("air-q4nx", "balanced", "nightly-balanced-llama32_1b_q4nx-prefill", fit.a["q4nx_ttft"] / krackan[0] / balanced[0])
    fit.point("air-q4nx", "balanced", "nightly-balanced-llama32_1b_q4nx-decode", 1000 / tpot * balanced[1])
    # Another version of IRON on Strix Point: not fitted, but its distance is part of the error bar.
    halo = fit.parameters["machines"]["strix-halo"]
    op = fit.op_level
    fit.point("air-bf16-op", "strix", "iron-l1b-prefill-2048-air-baseline", op["dispatch"] + op["prefill_weights"] * halo["bandwidth"] + op["prefill_flop"] * halo["clock"])
    fit.point("air-bf16-op", "strix", "iron-l1b-decode-air-baseline", op["decode"] + op["weights"] * (halo["bandwidth"] - 1))


def error_bars(fit):
    """90th percentiles of errors on rows that were not fitted: left out of a fit, or compared and never used in one.

    A pipeline's error is put together from those of its parts (src/plan/what_if.cc), since whole pipelines are
    published for one model.
    """
    held = lambda law: [e for _, name, _, e in fit.held_out if name == law]
    compared = lambda kernels, laws, phase: [e for k, name, label, e in fit.residuals
                                             if k == kernels and name in laws and fit.phase[label] == phase]
    p90 = lambda values: quantile(values, 0.9)
    fit.parameters["rel_error_p90"] = {
        "matmul": p90(planned_gemm_errors(fit)),
        "small_matmul": p90(small_gemm_errors(fit)),
        "bandwidth": p90(held("gemv")),
        "attention": p90(held("flash attention")),
        # Dispatches and the host's own work: the one host that was measured on two machines.
        "overhead": p90(compared("air-bf16-op", ("strix",), "prefill") + compared("air-bf16-op", ("strix",), "decode")),
        # The same pipeline, published twice.
        "repeat": p90(compared("air-bf16", ("end to end",), "prefill") + compared("air-bf16", ("end to end",), "decode")),
        # What two factors leave of the platform profile's effect.
        "profile": p90([e for _, name, _, e in fit.residuals if name == "balanced"]),
        "q4nx_decode": p90(held("fused decode") + compared("air-q4nx", ("krackan", "strix", "balanced"), "decode")),
        "flm_prefill": p90(held("flm prefill")),
        "flm_decode": p90(held("flm decode")),
    }


END_TO_END = ("end to end", "fused decode", "flm decode", "flm prefill", "op-level", "krackan", "strix", "balanced")
PRODUCTS = {"gemm fused-cast": "GEMMs", "gemm drain": "GEMMs", "gemm direct": "GEMMs", "gemv": "GEMVs"}


def errors_by_model(fit):
    """Whole prompts and tokens of a model, and its products alone: as fitted, and from a fit without the model or shape
    where others could tell. Rows of the kernel registry are called after the first model that uses them."""
    groups = {}
    for entries, column in ((fit.residuals, 0), (fit.held_out, 1)):
        for kernels, law, label, e in entries:
            model = re.match(r"(llama|qwen|smollm)[^ ]*", fit.model[label].lower())
            if model and (law in END_TO_END or law in PRODUCTS):
                key = (model.group(0), kernels, PRODUCTS.get(law, fit.phase[label]))
                groups.setdefault(key, ([], []))[column].append(e)
    rows = []
    for (model, kernels, what), (fitted, held) in sorted(groups.items()):
        row = {"model": model, "kernels": kernels, "what": what, "rows": len(fitted),
               "median": round(quantile(fitted, .5), 3), "worst": round(max(fitted, key=abs), 3)}
        if held:
            row |= {"held_out_median": round(quantile(held, .5), 3), "held_out_worst": round(max(held, key=abs), 3)}
        rows.append(row)
    return rows


def table(title, entries):
    print(f"\n{title}\n{'kernel set':<12} {'law':<18} {'rows':>4} {'median':>7} {'p90':>7}  worst")
    for key in sorted({(k, law) for k, law, _, _ in entries}):
        chosen = [(e, label) for k, law, label, e in entries if (k, law) == key]
        worst = max(chosen, key=lambda c: abs(c[0]))
        values = [e for e, _ in chosen]
        print(f"{key[0]:<12} {key[1]:<18} {len(chosen):>4} {quantile(values, .5):>7.1%} {quantile(values, .9):>7.1%}  {worst[0]:+.1%} {worst[1]}")
    values = [e for *_, e in entries]
    print(f"{'all':<31} {len(values):>4} {quantile(values, .5):>7.1%} {quantile(values, .9):>7.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibration", required=True, type=Path)
    parser.add_argument("--cpp", type=Path, help="C++ table to write")
    parser.add_argument("--json", type=Path, help="parameters with provenance to write")
    parser.add_argument("--check", action="store_true", help="fail unless median <= 8 %% and p90 <= 25 %%")
    options = parser.parse_args()
    fit = Fit([row for row in json.loads(options.calibration.read_text()) if row["reliability"] in "AB"])
    for step in (fit_kernels, fit_system_a, fit_fused, fit_flm, fit_op_level, fit_machines, error_bars):
        step(fit)
    table("Fitted set", fit.residuals)
    table("Held out: each model or shape predicted from a fit without it", fit.held_out)
    small = small_gemm_errors(fit)
    print(f"\nNever fitted: {len(small)} drain GEMMs of 64-256 rows, median {quantile(small, .5):.1%}, p90 {quantile(small, .9):.1%}")
    planned = planned_gemm_errors(fit)
    print(f"Planned: {len(planned)} GEMMs of 2048 rows from a fit without them, tile and kind chosen by rule, median {quantile(planned, .5):.1%}, p90 {quantile(planned, .9):.1%}")
    print("\n" + json.dumps(fit.parameters, indent=1))
    if options.cpp:
        options.cpp.write_text(cpp_text(fit.parameters))
    if options.json:
        summary = {law: {"rows": len(e), "median": round(quantile(e, .5), 4), "p90": round(quantile(e, .9), 4)}
                   for law in sorted({r[1] for r in fit.residuals}) for e in [[x for _, l, _, x in fit.residuals if l == law]]}
        document = {"about": "Fitted by tools/fit_cost_model.py from published measurements; ids name rows of its calibration table.",
                    "parameters": fit.parameters, "residuals": summary, "by_model": errors_by_model(fit), "provenance": fit.provenance}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    values = [e for *_, e in fit.residuals]
    return 1 if options.check and (quantile(values, .5) > 0.08 or quantile(values, .9) > 0.25) else 0


if __name__ == "__main__":
    sys.exit(main())
