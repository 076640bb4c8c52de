"""Draws the training and held-out loss: plot_loss.py LOG PNG."""

import json
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

log = json.load(open(sys.argv[1]))
figure, axes = plt.subplots(figsize=(8, 4.5), dpi=110)
million = log["tokens_per_step"] / 1e6
for name, label, style in (("train", "training", dict(color="#7a9cc6", linewidth=1.2)),
                           ("heldout", "held-out stories", dict(color="#b4443c", linewidth=1.8))):
    axes.plot([step * million for step, _ in log[name]], [loss for _, loss in log[name]],
              label=label, **style)
low = min(loss for name in ("train", "heldout") for _, loss in log[name])
axes.set_ylim(low * 0.9, low * 2.2)
axes.set_xlabel("million tokens")
axes.set_ylabel("loss (nats per token)")
axes.set_title(f"Owlet, {log['parameters'] / 1e6:.1f} M parameters")
axes.grid(alpha=0.25)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.tight_layout()
figure.savefig(sys.argv[2])
