"""Writes ELFs of control code and instruction streams as XRT's and mlir-aie's sources describe them: the structure
is theirs, the code inside made up."""
import struct


def elf(instance, arguments, patches=(), columns=8, os_abi=69, seed=0):
    """`patches` are (argument, offset, bytes): what a DMA moves of an argument."""
    words = [word for _, _, size in patches for word in (size // 4, 0, 0, 0, 0, 0, 0, 0)]
    text = struct.pack(f"<{len(words) + 8}I", *words, *range(seed, seed + 8))
    signature = f"_Z4main{'Pc' * arguments}".encode()
    symbols = bytes(16) + struct.pack("<IQBBH", 1, 0, 2, 0, 0)
    symbols += struct.pack("<IQBBH", 2 + len(signature), 0, 1, 0, 1)
    dynamic, names, relocations = bytes(16), b"\0", b""
    for number, (argument, offset, _) in enumerate(patches):
        dynamic += struct.pack("<IQBBH", len(names), 0, 1, 0, 1)
        names += str(argument).encode() + b"\0"
        relocations += struct.pack("<III", number * 32, (number + 1) << 8 | 5, offset)
    sections = [  # name, type, content, link, info
        (".ctrltext.0", 1, text, 0, 0),
        (".strtab", 3, b"\0" + signature + b"\0" + instance.encode() + b"\0", 0, 0),
        (".symtab", 2, symbols, 2, 0),
        (".group", 17, struct.pack("<II", 1, 1), 3, 2),
        (".dynsym", 11, dynamic, 0, 0),
        (".dynstr", 3, names, 0, 0),
        (".rela.dyn", 4, relocations, 0, 0),
        (".note.xrt.configuration", 7, struct.pack("<III4sI", 4, 4, 1, b"XRT", columns), 0, 0),
    ]
    titles = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, titles, 0, 0))
    body, table = b"", bytes(40)
    for name, kind, content, link, info in sections:
        table += struct.pack("<10I", titles.index(b"\0" + name.encode() + b"\0") + 1, kind, 0, 0, 52 + len(body),
                             len(content), link, info, 4, 0)
        body += content
    header = b"\x7fELF" + bytes([1, 1, 1, os_abi, 0x10]) + bytes(7)
    header += struct.pack("<HHIIIIIHHHHHH", 1, 69, 1, 0, 0, 52 + len(body), 0, 52, 0, 0, 40, len(sections) + 1,
                          len(sections))
    return header + body + table


def xclbin(kernel="MLIR_AIE:MLIRAIE", columns=8, buffers=9):
    """One kernel whose buffers lie in the host's memory, its instruction words in the device's."""
    topology = struct.pack("<Q", 2) + b"".join(struct.pack("<24x16s", tag) for tag in (b"HOST", b"SRAM"))
    kernels = struct.pack("<Q16x64s", 1, kernel.encode())
    connections = struct.pack("<I3I", buffers + 1, 1, 0, 1) + b"".join(struct.pack("<3I", i + 3, 0, 0) for i in range(buffers))
    partition = struct.pack("<32xH86xII16xII", columns, 1, 128, 100, 224).ljust(224, b"\0") + b"p" * 100
    sections = [(6, topology), (32, partition), (8, kernels), (7, connections)]
    at, table = 456 + 40 * len(sections), b""
    for kind, body in sections:
        table += struct.pack("<I20xQQ", kind, at, len(body))
        at += len(body)
    header = b"xclbin2\0".ljust(304, b"\0") + struct.pack("<Q", at)
    return header.ljust(448, b"\0") + struct.pack("<Q", len(sections)) + table + b"".join(b for _, b in sections)


def stream(moves, writes=()):
    """`moves` are (argument, offset, bytes), `writes` (address, value)."""
    words, operations = [], 0
    for argument, offset, size in moves:
        words += [1, 0, 0x1D040, 48, size // 4, 0, 0, 0, 0, 0, 0, 0]
        words += [129, 48, 0, 0, 0, 0, 0x1D044, 0, argument, 0, offset, 0]
        operations += 2
    for address, value in writes:
        words += [0, 0, address, 0, value, 24]
        operations += 1
    words = [6 << 24 | 4 << 16 | 1 << 8, 1 << 8 | 8, operations, 4 * (len(words) + 4)] + words
    return struct.pack(f"<{len(words)}I", *words)
