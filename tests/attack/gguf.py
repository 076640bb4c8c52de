"""GGUF files as values, so that one field can be wrong while the rest is right."""
import struct
from dataclasses import dataclass, field

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass
class Entry:
    key: bytes
    kind: int
    value: object  # an array's: (kind of the elements, list)


@dataclass
class Tensor:
    name: bytes
    extents: list
    kind: int
    offset: int


@dataclass
class Gguf:
    entries: list
    tensors: list
    data: bytes
    version: int = 3
    alignment: int = 32
    data_at: int = 0  # where the tensors begin in the file that was read
    edges: list = field(default_factory=list)  # where a field of that file ends

    def entry(self, key):
        return next((e for e in self.entries if e.key == key), None)


class Reader:
    def __init__(self, content):
        self.content, self.at, self.edges = content, 0, []

    def take(self, form):
        value, = struct.unpack_from("<" + form, self.content, self.at)
        self.at += struct.calcsize("<" + form)
        self.edges.append(self.at)
        return value

    def text(self):
        length = self.take("Q")
        self.at += length
        self.edges.append(self.at)
        return self.content[self.at - length:self.at]

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            return inner, [self.value(inner) for _ in range(count)]
        return self.take(NUMBERS[kind])


def read(content):
    reader = Reader(content)
    assert content[:4] == b"GGUF"
    reader.at = 4
    version, tensor_count, entry_count = reader.take("I"), reader.take("Q"), reader.take("Q")
    entries = []
    for _ in range(entry_count):
        key, kind = reader.text(), reader.take("I")
        entries.append(Entry(key, kind, reader.value(kind)))
    tensors = []
    for _ in range(tensor_count):
        name = reader.text()
        extents = [reader.take("Q") for _ in range(reader.take("I"))]
        tensors.append(Tensor(name, extents, reader.take("I"), reader.take("Q")))
    data_at = -(-reader.at // 32) * 32
    return Gguf(entries, tensors, content[data_at:], version, 32, data_at, reader.edges)


def text(value):
    return struct.pack("<Q", len(value)) + value


def value_bytes(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(value_bytes(inner, item) for item in items)
    return struct.pack("<" + NUMBERS[kind], value)


def write(gguf, tensor_count=None, entry_count=None):
    """The file; counts that are given stand in the header instead of the true ones."""
    head = b"GGUF" + struct.pack("<IQQ", gguf.version,
                                 len(gguf.tensors) if tensor_count is None else tensor_count,
                                 len(gguf.entries) if entry_count is None else entry_count)
    for entry in gguf.entries:
        head += text(entry.key) + struct.pack("<I", entry.kind) + value_bytes(entry.kind, entry.value)
    for tensor in gguf.tensors:
        head += text(tensor.name) + struct.pack(f"<I{len(tensor.extents)}QIQ", len(tensor.extents), *tensor.extents,
                                                tensor.kind, tensor.offset)
    return head + bytes(-len(head) % gguf.alignment) + gguf.data
