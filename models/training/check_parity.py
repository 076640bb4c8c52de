"""Compares the training network with transformers on the saved weights: they must be one model."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from model import Owlet

folder = Path(sys.argv[1])
network = Owlet(json.loads((folder / "config.json").read_text()))
weights = {name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()}
print(network.load_state_dict(weights), network.config["rope_scaling"])
reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager")
ids = torch.randint(0, 4096, (1, 1500), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    ours, theirs = network(ids), reference(ids).logits
error = ((ours - theirs).norm() / theirs.norm()).item()
print(f"relative difference to transformers: {error:.2e}",
      getattr(reference.config, "rope_parameters", None))
if not error < 1e-4:
    raise SystemExit("the two disagree")
