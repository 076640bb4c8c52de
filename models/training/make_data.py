"""Writes the training shards (token ids) and the held-out files.

  python make_data.py tokenizer  --out DIR           trains the tokenizer
  python make_data.py heldout    --out DIR           held-out requests and held-out text
  python make_data.py shards     --out DIR --shards N [--workers W]

Every shard has its own seed, so the data do not depend on the number of workers.
"""

import argparse
import json
import multiprocessing
import random
import re
import time
import zlib
from pathlib import Path

from asking import make_held_out_request
from samples import EOT, HEADER, HEADER_END, STORY_GAP, make_sample, titled_story
from story import make_story

HERE = Path(__file__).parent
CHECKPOINT = HERE.parent / "owlet"
SEED = 20251
SHARD_SAMPLES = 5_000
HELD_OUT_BYTES = 120_000
USER_TURN = re.escape(f"{HEADER}user{HEADER_END}") + ".*?" + re.escape(EOT)


def words_of(text):
    return re.findall(r"[a-z]+", text.lower())


def stream(name):
    return random.Random(f"{SEED}/{name}")


def shard_texts(index):
    rng = stream(f"shard/{index}")
    return [make_sample(rng) for _ in range(SHARD_SAMPLES)]


def write_shard(job):
    index, out = job
    import numpy as np
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    texts = shard_texts(index)
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = np.concatenate([np.array(one.ids, dtype=np.uint16) for one in encoded])
    prints = np.array([zlib.crc32(text.encode()) << 32 | zlib.adler32(text.encode())
                       for text in texts], dtype=np.uint64)
    np.save(out / f"hashes{index:03}.npy", prints)
    plain = re.sub(r"<\|\w+\|>", "\n", re.sub(USER_TURN, "", "\n".join(texts), flags=re.DOTALL))
    (out / f"words{index:03}.json").write_text(json.dumps({
        "letters": "".join(sorted(set(plain))), "words": sorted(set(words_of(plain)))}))
    part = out / f"part{index:03}.npy"
    np.save(part, ids)
    part.rename(out / f"shard{index:03}.npy")  # readers wait for this name


def make_shards(out, shards, workers):
    out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for done, _ in enumerate(pool.imap_unordered(write_shard,
                                                     [(i, out) for i in range(shards)])):
            if (done + 1) % 20 == 0:
                print(f"data: {done + 1}/{shards} shards, {time.time() - began:.0f} s", flush=True)


def make_held_out(out):
    """200 requests and about 120 KB of stories, both of combinations never trained on."""
    rng = stream("heldout/requests")
    requests, seen = [], set()
    while len(requests) < 200:
        entry = make_held_out_request(make_story(rng, held=True), rng)
        if entry["request"] not in seen:
            seen.add(entry["request"])
            requests.append(entry)
    (HERE / "heldout_requests.json").write_text(
        "[\n" + ",\n".join(json.dumps(entry) for entry in requests) + "\n]\n")
    rng = stream("heldout/text")
    stories, size = [], 0
    while size < HELD_OUT_BYTES:
        stories.append(titled_story(rng, held=True))
        size += len(stories[-1]) + len(STORY_GAP)
    (out / "heldout.txt").write_text(STORY_GAP.join(stories) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("tokenizer", "heldout", "shards"))
    parser.add_argument("--out", type=Path, default=CHECKPOINT)
    parser.add_argument("--shards", type=int, default=440)
    parser.add_argument("--workers", type=int, default=14)
    options = parser.parse_args()
    if options.what == "tokenizer":
        from make_tokenizer import make_tokenizer
        with multiprocessing.get_context("fork").Pool(options.workers) as pool:
            texts = pool.map(shard_texts, [1000 + i for i in range(12)])
        make_tokenizer(options.out, (text for part in texts for text in part))
    elif options.what == "heldout":
        make_held_out(options.out)
    else:
        make_shards(options.out, options.shards, options.workers)


if __name__ == "__main__":
    main()
