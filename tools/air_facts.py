"""What MLIR-AIR's builders say about the images of its language models, as plain facts.

Facts of a model: its dimensions; of each program its name and entry, how many launches it has, the
type and shape of each argument in order ("bf16 2048x512"), which of them no launch touches, and what its callers read
back and keep resident; of a single-dispatch decode the numbers its buffers are laid out by.
"""

import ast
import re
import subprocess
from pathlib import Path

from air_text import Evaluator, Function, NotRead, Opaque, Record

SEQ = 2048
# They compile C++ and keep files: nothing of them is in an argument list.
NOT_LOOKED_INTO = ("shared.infra.external_kernels", "shared.infra.cache")
# Builders of single kernels beside these folders run a compiler: what they make is not known here.
LOOKED_INTO = ("llms", "fused_decode", "kernel_registry")
COMPILERS = {"prompt": ("_prefill", "compile_all_kernels"),
             "token": ("_decode", "compile_decode_kernels")}
MEMREF = re.compile(r"memref<(?P<shape>(?:\d+x)*)(?P<type>[a-z]+\d+)>")
INDEX_SETS = ("output_indices", "static_input_indices", "intermediate_indices")

# The single-dispatch decode: what its generator is told by the environment, by the folder whose
# Makefile and driver tell it. VOCAB_CHUNK_I2 is read from the driver where it says it.
DECODE_ENVIRONMENT = {"UNIFIED": "1", "LM_HEAD": "0", "NLAYERS": "1", "DECODE_GOLDEN": "1",
                      "DECODE_GOLDEN_L": str(SEQ)}
# Names of the generator's module, and what they are called in the transcript.
DECODE_NUMBERS = {
    "K": "emb", "M": "qkv_rows", "DH": "head_dim", "UNI_DEC": "layers", "NUM_Q_HEADS": "heads",
    "NUM_KV_HEADS": "kv_heads", "VOCAB_SIZE": "vocab",
    "ROW_BLOCK": "block_rows", "COL_BLOCK": "block_cols", "BLOCK_BF16": "block_elements",
    "W_DUAL_CHAN": "dual_channel", "VOCAB_SIZE_PADDED": "head_chunk_rows", "UNI_LM": "head_chunks",
    "W_LAYER": "layer_elements", "RMS_LAYER": "norm_elements_per_layer", "ROPE_W_LEN": "rope_row_elements",
    "ROPE_W_PER_LAYER": "rope_row_per_layer", "KV_LAYER": "kv_layer_elements", "REGION_W": "kv_position_elements",
    "REGION_STRIDE": "kv_region_elements", "NGRP": "kv_groups", "ATTN_MAXL": "window",
    "NBI_PH": "phase_row_blocks", "NBJ_PH": "phase_col_blocks", "HAS_QK_NORM": "qk_norm",
    "HAS_QKV_BIAS": "qkv_bias"}


def stitched(name, base_args, slices, scratch_args=(), allow_unreferenced_args=(), **_):
    """In place of the checkout's stitch_elf: what it is given says all."""
    scratch = range(len(base_args), len(base_args) + len(scratch_args))
    # A product into f32 scratch is followed by a launch that rounds it.
    launches = sum(2 if any(i in scratch for i in s.arg_map.values()) else 1 for s in slices)
    return Record("program", {"name": name, "arguments": [*base_args, *scratch_args],
                              "dead": sorted(allow_unreferenced_args), "launches": launches})


def wrapped(*_):
    """In place of _wrap_ir_in_launch, which rewrites the text of a compiler's input."""
    return Opaque("text")


def evaluator(checkout, folder, environment=None):
    examples = checkout / "programming_examples"
    llms = examples / "llms"
    others = sorted(p for p in llms.iterdir() if p.is_dir())  # models take each other's builders
    return Evaluator(checkout, [llms / folder, examples / "fused_decode", llms, examples, *others],
                     environment or {}, {("shared.infra.stitching", "stitch_elf"): stitched,
                                         ("shared.infra.stitching", "_wrap_ir_in_launch"): wrapped},
                     NOT_LOOKED_INTO, [examples / name for name in LOOKED_INTO])


def argument(memref):
    found = MEMREF.fullmatch(memref) if isinstance(memref, str) else None
    if found is None:
        raise NotRead("argument", f"type {memref!r}")
    return f"{found['type']} {found['shape'].rstrip('x')}"


def program_facts(phase, name, module, backend):
    entry = backend.get("instance_name") if isinstance(backend, dict) else None
    facts = {"name": name, "phase": phase, "entry": f"main:{entry}"}
    if isinstance(module, tuple):  # with which argument is whose scratch
        module = module[0]
    if isinstance(module, Record):
        facts["launches"] = module.launches
        facts["arguments"] = [argument(a.type) for a in module.arguments]
        facts["dead"] = module.dead
    else:  # a builder outside of the models' folders: its signature is not part of their text
        facts["builder"] = module.origin.removesuffix(".build_module").rsplit(".", 1)[-1]
        facts["given"] = {k: v for k, v in module.kwargs.items() if isinstance(v, int)}
    return facts


def called_with(checkout, folder, home):
    """{program: {index set: values}} of the calls whose sets are written out; by the text alone."""
    found = {}
    for path in sorted((checkout / "programming_examples/llms" / folder).glob("*.py")) + \
            sorted((checkout / "programming_examples/llms" / home).glob("*.py")):
        try:
            tree = ast.parse(path.read_text())
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "load_and_run" and node.args
                    and isinstance(node.args[0], ast.Constant)):
                continue
            sets = found.setdefault(node.args[0].value, {})
            for keyword in node.keywords:
                if keyword.arg in INDEX_SETS:
                    try:
                        values = sorted(ast.literal_eval(keyword.value))
                    except ValueError:
                        continue  # computed: what it comes to is in the arguments' roles
                    sets.setdefault(keyword.arg, values)
    return found


def module_of(evaluated, folder, suffix, function):
    """The module that has the name: the folder's own, or the one it takes it from."""
    for name in (folder + suffix, folder + "_inference", folder + "_prefill"):
        module = evaluated.module(name)
        if isinstance(module, Opaque):
            continue
        if function in module.names and not isinstance(module.names[function], Opaque):
            return name
        path = evaluated.checkout / module.path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and any(a.name == function for a in node.names):
                return node.module
    return None


def config_of(evaluated, folder):
    """By the folder's own function where it has one, else the defaults of its class."""
    weights = evaluated.module(folder + "_weights")
    own = [] if isinstance(weights, Opaque) else \
        [n for n, v in weights.names.items() if n.endswith("_config") and isinstance(v, Function)]
    name = folder + "_weights" if own else module_of(evaluated, folder, "_weights", "LlamaConfig")
    if name is not None:
        made = evaluated.apply(evaluated.value(name, own[0] if own else "LlamaConfig"), [], {}, name)
        if isinstance(made, Record):
            return made
    raise NotRead(folder, "has no LlamaConfig")


def head_of_prompts(evaluated, folder, config):
    """In a folder whose decode is one dispatch: the head that its prompts end with."""
    given = {}
    for theirs, ours in (("_LM_N_PARTITIONS", "n_partitions"), ("_LM_N_PART", "n_part")):
        value = evaluated.module(folder + "_prefill").names.get(theirs)
        if isinstance(value, int):
            given[ours] = value
    made = evaluated.call("shared.builders.lm_head_gemv_multi", "build_lm_head_gemv_module",
                          config.emb_dim, **given)
    return program_facts("head", "lm_head_gemv", made, {"instance_name": "lm_head_gemv"})


def model_facts(checkout, folder):
    evaluated = evaluator(checkout, folder)
    config = config_of(evaluated, folder)
    names = {"n_layers": "layers", "emb_dim": "emb", "n_heads": "heads", "n_kv_heads": "kv_heads",
             "head_dim": "head_dim", "hidden_dim": "hidden", "vocab_size": "vocab"}
    facts = {"dims": {ours: getattr(config, theirs) for theirs, ours in names.items()},
             "programs": [], "not_read": [], "phases_not_read": []}
    facts["dims"].update(seq=SEQ, qkv_bias=int(getattr(config, "qkv_bias", 0)),
                         qk_norm=int(getattr(config, "qk_norm", 0)))
    home = folder
    for phase, (suffix, function) in COMPILERS.items():
        made = []

        def compile_and_cache(name, module, backend):
            made.append((name, module, backend))

        compile_and_cache.takes_opaque = True
        cache = Record("cache", {"compile_and_cache": compile_and_cache, "verbose": False,
                                 "artifacts": {}, "cache_dir": "", "_save_manifest": lambda: None,
                                 "profiler": Record("profiler", {"enabled": False})})
        if phase == "token" and folder.endswith("_q4nx"):  # decode_facts has it
            facts["programs"].append(head_of_prompts(evaluated, folder, config))
            continue
        name = module_of(evaluated, folder, suffix, function)
        if name is None:
            facts["not_read"].append(f"{folder}: no {function}")
            facts["phases_not_read"].append(phase)
            continue
        home = name.rsplit("_", 1)[0]
        given = {"cpu_attn": False} if phase == "prompt" else {}
        before = len(evaluated.undecided)
        try:
            evaluated.call(name, function, cache, config, *([SEQ] if phase == "prompt" else []), **given)
            facts["programs"] += [program_facts(phase, *item) for item in made]
        except NotRead as error:
            facts["not_read"].append(str(error))
            facts["phases_not_read"].append(phase)
        facts["not_read"] += [f"{where}: undecided" for where in evaluated.undecided[before:]]
    sets = called_with(checkout, folder, home)
    for program in facts["programs"]:
        program.update({key: values for key, values in sets.get(program["name"], {}).items()})
        if program["name"] == "lm_head_gemv":
            program["phase"] = "head"
    return facts


def decode_facts(checkout, folder):
    """In a folder whose decode is one dispatch: the generator's numbers for its model."""
    model, chunk = None, None
    for path in sorted((checkout / "programming_examples/llms" / folder).glob("*.py")) + \
            [checkout / "programming_examples/llms" / folder / "Makefile"]:
        text = path.read_text()
        model = model or next(iter(re.findall(r'DECODE_MODEL["\s:?=]+([a-z0-9.\-]+)', text)), None)
        chunk = chunk or next(iter(re.findall(r'VOCAB_CHUNK_I2["\s:?=]+"?(\d+)', text)), None)
    environment = {**DECODE_ENVIRONMENT, "DECODE_MODEL": model or "llama-3.2-1b"}
    if chunk is not None:
        environment["VOCAB_CHUNK_I2"] = chunk
    evaluated = evaluator(checkout, folder, environment)
    module = evaluated.module("fused_decode")
    if isinstance(module, Opaque):
        raise NotRead("programming_examples/fused_decode", "there is no fused_decode.py")
    facts = {"model": environment["DECODE_MODEL"], "environment": environment, "numbers": {}, "not_read": []}
    for theirs, ours in DECODE_NUMBERS.items():
        value = module.names.get(theirs, Opaque(theirs))
        if isinstance(value, (int, list)):
            facts["numbers"][ours] = int(value) if isinstance(value, bool) else value
        else:
            where = evaluated.unknown.get((module.path, theirs), f"{module.path}: has no such name")
            facts["not_read"].append(f"{where}: {theirs}")
    return facts


def build_files(checkout):
    """Files that a decode build leaves beside its images, and what is written into them."""
    text = (checkout / "programming_examples/fused_decode/Makefile").read_text()
    return {"windows": ".decode_windows" in text, "flags": ".decode_flags" in text,
            "flag_names": sorted(set(re.findall(r"\b(W_DUAL_CHAN|VOCAB_CHUNK_I2|DECODE_MODEL)=", text)))}


def read_checkout(checkout):
    checkout = Path(checkout).resolve()
    llms = checkout / "programming_examples/llms"
    if not llms.is_dir():
        raise NotRead(checkout, "is no checkout of MLIR-AIR: there is no programming_examples/llms")
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    facts = {"from": "MLIR-AIR, programming_examples/llms and fused_decode",
             "commit": commit.stdout.strip() if commit.returncode == 0 else "unknown",
             "models": {}, "decodes": {}, "files": build_files(checkout), "not_read": {}}
    for folder in sorted(p.name for p in llms.iterdir() if p.is_dir()):
        is_q4nx = folder.endswith("_q4nx")
        if not is_q4nx and not (llms / folder / f"{folder}_weights.py").is_file():
            continue
        try:
            if is_q4nx:
                facts["decodes"][folder] = decode_facts(checkout, folder)
            facts["models"][folder] = model_facts(checkout, folder)
        except NotRead as error:
            facts["not_read"][folder] = str(error)
    return facts
