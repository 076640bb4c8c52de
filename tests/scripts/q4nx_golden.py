#!/usr/bin/env python3
"""Packs matrices for the single-dispatch decode, from the published layout alone.

  tests/scripts/q4nx_golden.py > tests/data/q4nx/blocks.json
  tests/scripts/q4nx_golden.py --check tests/data/q4nx/blocks.json

Shares nothing with src/. A block is 32 rows x 256 columns in 5120 bytes: scales [8 groups of 32
columns][32 rows] and minima [8][32] in bf16, then codes [2 halves of 16 rows][256 columns][8 bytes],
the even row of a pair in the low four bits. Blocks of a matrix lie in the order in which the array is
fed: columns of the array (4), the two DMA channels of a column, passes, blocks along a row, and the two
tiles of the channel. Row block i is that of pass i / 16, column i % 16 / 4 and tile i % 4.

The values are levels of a scale and a minimum that bf16 holds exactly, with the lowest and the highest
level in every group, so that there is one right answer.
"""

import json
import struct
import sys
import zlib

BLOCK_ROWS, BLOCK_COLS, GROUP, PASS_ROWS = 32, 256, 32, 512
# A layer of the smallest shape with every kind of padding: rows, columns of each matrix.
EMB, HIDDEN, Q, KV, VOCAB = 288, 640, 256, 64, 700


def level(tensor, row, col):
    if col % GROUP in (0, GROUP - 1):
        return 0 if col % GROUP == 0 else 15
    return (7 * row + 3 * col + tensor + row * col % 5) % 16


def scale(tensor, row, group):
    return 2.0 ** -(3 + (row + group + tensor) % 4)


def minimum(tensor, row, group):
    return -scale(tensor, row, group) * (1 + (row + 3 * group) % 14)


class Matrix:
    """`rows`: for each row of the phase (tensor, row of it), or None for padding."""

    def __init__(self, rows, cols):
        self.rows = rows + [None] * (-len(rows) % PASS_ROWS)
        self.cols = cols
        self.col_blocks = -(-cols // BLOCK_COLS)

    def at(self, row, col, function):
        if self.rows[row] is None or col >= self.cols:
            return 0
        return function(*self.rows[row], col)


def bf16(value):
    return struct.pack("<f", value)[2:]


def block(matrix, row_block, col_block):
    first_row, first_col = row_block * BLOCK_ROWS, col_block * BLOCK_COLS
    scales, minima, codes = bytearray(), bytearray(), bytearray()
    for group in range(BLOCK_COLS // GROUP):
        col = first_col + group * GROUP
        for row in range(first_row, first_row + BLOCK_ROWS):
            scales += bf16(matrix.at(row, col, lambda t, r, c: scale(t, r, c // GROUP)))
            minima += bf16(matrix.at(row, col, lambda t, r, c: minimum(t, r, c // GROUP)))
    for half in range(2):
        for col in range(first_col, first_col + BLOCK_COLS):
            for pair in range(8):
                row = first_row + 16 * half + 2 * pair
                codes.append(matrix.at(row, col, level) | matrix.at(row + 1, col, level) << 4)
    return bytes(scales + minima + codes)


def packed(matrix):
    passes = len(matrix.rows) // PASS_ROWS
    for column in range(4):
        for channel in range(2):
            for number in range(passes):
                for col_block in range(matrix.col_blocks):
                    for tile in (2 * channel, 2 * channel + 1):
                        yield block(matrix, number * 16 + column * 4 + tile, col_block)


def of(tensor, count, first=0):
    return [(tensor, row) for row in range(first, first + count)]


def gate_and_up():
    """512 rows of up, then as many of gate; each padded by itself."""
    rows = []
    for first in range(0, HIDDEN, PASS_ROWS):
        count = min(PASS_ROWS, HIDDEN - first)
        for tensor in (6, 5):
            rows += of(tensor, count, first) + [None] * (PASS_ROWS - count)
    return rows


def golden():
    phases = {"qkv": Matrix(of(1, Q) + of(2, KV) + of(3, KV), EMB), "o": Matrix(of(4, EMB), Q),
              "gate_up": Matrix(gate_and_up(), EMB), "down": Matrix(of(7, EMB), HIDDEN),
              "head": Matrix(of(8, VOCAB), EMB)}
    return {"dims": {"emb": EMB, "hidden": HIDDEN, "q": Q, "kv": KV, "vocab": VOCAB},
            "crc32": {name: [zlib.crc32(b) for b in packed(m)] for name, m in phases.items()}}


def main():
    made = golden()
    if sys.argv[1:2] != ["--check"]:
        print(json.dumps(made, indent=None))
        return 0
    with open(sys.argv[2]) as file:
        if json.load(file) == made:
            return 0
    print(f"{sys.argv[2]} is not what this script makes")
    return 1


if __name__ == "__main__":
    sys.exit(main())
