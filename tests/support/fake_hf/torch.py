"""Stands in for torch where tools/hf_reference.py is tested: just what it calls, on lists."""
import contextlib
import math

__version__ = "fake"
float32, bfloat16, float16 = "float32", "bfloat16", "float16"


class Row(list):
    def float(self):
        return self

    def tolist(self):
        return list(self)

    def __neg__(self):
        return Row(-value for value in self)

    def all(self):
        return all(self)


def tensor(values):
    return values


def isfinite(row):
    return Row(math.isfinite(value) for value in row)


def manual_seed(seed):
    pass


def inference_mode():
    return contextlib.nullcontext()
