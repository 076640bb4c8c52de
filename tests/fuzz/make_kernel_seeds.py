#!/usr/bin/env python3
"""Writes the seeds of fuzz_kernel_image: an ELF of control code, an xclbin, an instruction stream, and damaged ones."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from npu_images import elf, stream, xclbin  # noqa: E402

CORPUS = HERE / "corpus" / "kernel_image"


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    image = elf("o_ffn", 4, [(0, 0, 4096), (3, 512, 64)], columns=4)
    words = stream([(0, 0, 4096), (4, 512, 64)], [(0x200400, 7)])
    (CORPUS / "elf").write_bytes(image)
    (CORPUS / "elf_cut").write_bytes(image[:-100])
    (CORPUS / "elf_other_platform").write_bytes(elf("o_ffn", 1, os_abi=75))
    (CORPUS / "xclbin").write_bytes(xclbin())
    (CORPUS / "xclbin_cut").write_bytes(xclbin(buffers=2)[:-30])
    (CORPUS / "words").write_bytes(words)
    (CORPUS / "words_cut").write_bytes(words[:-8])


if __name__ == "__main__":
    main()
