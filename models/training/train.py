"""Trains Owlet in bf16 on one GPU.

  python train.py --data DIR --out DIR --steps N [--seconds S]

Reads the shards of make_data.py as they appear, so both can run at the same time. The learning
rate falls to zero over --steps or over --seconds, whichever ends first; the committed model was
bounded by time. For a result that does not depend on the speed of the machine give
--steps 17500 --seconds 1e9.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch

from model import CONFIG, Owlet, loss_of, save

SEED = 20251
LENGTH = 2048
WARMUP = 300
GROUP = 12  # shards that are shuffled together in the first pass


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shards", type=int, default=440)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--set", nargs="*", default=[], help="config fields, name=value")
    return parser.parse_args()


def rows_of(ids, device):
    count = (len(ids) - 1) // LENGTH
    cut = torch.from_numpy(ids[:count * LENGTH + 1].astype(np.int32)).to(device)
    return cut.unfold(0, LENGTH + 1, LENGTH)


class Rows:
    """Rows of LENGTH + 1 tokens: the first pass takes shard after shard, later ones shuffle all."""

    def __init__(self, data, shards, batch, device):
        self.data, self.shards, self.batch, self.device = data, shards, batch, device
        self.order = torch.Generator().manual_seed(SEED)
        self.loaded, self.passes, self.waited = [], 0, 0.0

    def path(self, index):
        return self.data / f"shard{index:03}.npy"

    def load(self, index):
        path = self.path(index)
        began = time.time()
        while not path.exists():
            time.sleep(0.2)
        self.waited += time.time() - began
        self.loaded.append(rows_of(np.load(path), self.device))
        return self.loaded[-1]

    def batches(self, rows):
        order = torch.randperm(len(rows), generator=self.order).to(self.device)
        for start in range(0, len(rows) - self.batch + 1, self.batch):
            yield rows[order[start:start + self.batch]].long()

    def __iter__(self):
        for first in range(0, self.shards, GROUP):
            group = range(first, min(first + GROUP, self.shards))
            while self.loaded and not all(self.path(index).exists() for index in group):
                spare = torch.randint(len(self.loaded), (1,), generator=self.order).item()
                yield from self.batches(self.loaded[spare])
            yield from self.batches(torch.cat([self.load(index) for index in group]))
        everything = torch.cat(self.loaded)
        self.loaded.clear()
        while True:
            self.passes += 1
            yield from self.batches(everything)


def held_out_rows(device):
    from tokenizers import Tokenizer
    folder = Path(__file__).parent.parent / "owlet"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode((folder / "heldout.txt").read_text()).ids
    return rows_of(np.array(ids, dtype=np.uint16), device).long()


def optimizer_of(network, rate):
    matrices = [weight for weight in network.parameters() if weight.dim() == 2]
    vectors = [weight for weight in network.parameters() if weight.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-9, fused=True)


def rate_at(step, done, peak):
    """Linear warm-up, then a cosine down to zero; done is the finished share of the run."""
    if step < WARMUP:
        return peak * (step + 1) / WARMUP
    return peak * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def train(args, config):
    device = torch.device("cuda")
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    network = Owlet(config).to(device)
    size = sum(weight.numel() for weight in network.parameters())
    print(f"{size} parameters", flush=True)
    optimizer = optimizer_of(network, args.rate)
    compiled = torch.compile(loss_of)
    test = held_out_rows(device)
    rows = Rows(args.data, args.shards, args.rows, device)
    log = {"parameters": size, "tokens_per_step": args.rows * LENGTH, "train": [], "heldout": []}
    recent, began, clock = [], time.time(), None
    for step, batch in enumerate(rows):
        now = time.time()
        if step == 10:  # compilation is over
            torch.cuda.synchronize()
            clock = time.time()
        done = max(step / args.steps, (now - began) / args.seconds)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, done, args.rate)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(network, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        if step % 50 == 49:
            log["train"].append((step + 1, torch.stack(recent).mean().item()))
            recent = []
            if clock:
                speed = (step - 9) * args.rows * LENGTH / (time.time() - clock)
        if step % 500 == 499:
            log["heldout"].append((step + 1, held_out_loss(network, test)))
            print(f"step {step + 1}: train {log['train'][-1][1]:.4f} "
                  f"held-out {log['heldout'][-1][1]:.4f} "
                  f"{speed / 1e6:.2f} Mtok/s pass {rows.passes} waited {rows.waited:.0f} s "
                  f"at {time.time() - began:.0f} s", flush=True)
    log["heldout"].append((step, held_out_loss(network, test)))
    log["steps"], log["seconds"] = step, time.time() - began
    log["passes"], log["tokens_per_second"] = rows.passes, speed
    print(f"final: {step} steps, held-out {log['heldout'][-1][1]:.4f}", flush=True)
    return network, log


@torch.no_grad()
def held_out_loss(network, test):
    with torch.autocast("cuda", torch.bfloat16):
        return sum(loss_of(network, part).item() * len(part) for part in test.split(8)) / len(test)


def main():
    args = options()
    config = dict(CONFIG)
    config.update({name: int(value) for name, value in (item.split("=") for item in args.set)})
    args.out.mkdir(parents=True, exist_ok=True)
    network, log = train(args, config)
    save(network, args.out)
    (args.out / "log.json").write_text(json.dumps(log))


if __name__ == "__main__":
    main()
