"""Ways to damage a GGUF file. Each takes (trial, number) and returns the file's content and what must come of it."""
import math
import struct

import gguf
import hostile

REFUSE, SAME, ANY = "refuse", "same", "any"
HUGE = [2**31, 2**32, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


def whole(trial, dtype="q8_0"):
    content = trial.stock.ggufs[dtype].read_bytes()
    return content, gguf.read(content)


def truncated(trial, number):
    content, parsed = whole(trial)
    places = parsed.edges + [parsed.data_at + t.offset for t in parsed.tensors] + [len(content) - 33]
    place = places[number] if number < len(places) // 4 else trial.random.choice(places)
    return content[:max(0, min(len(content) - 33, place + trial.random.choice([-1, 0, 1])))], REFUSE


def trailing(trial, number):
    extra = trial.random.choice([64, 100, 4096, 100_000])
    return whole(trial)[0] + (bytes(extra) if number % 2 else trial.random.randbytes(extra)), REFUSE


def overlapping(trial, number):
    _, parsed = whole(trial)
    first, second = trial.random.sample(parsed.tensors, 2)
    second.offset = first.offset
    return gguf.write(parsed), REFUSE


def counts(trial, number):
    _, parsed = whole(trial)
    count = trial.random.choice([*HUGE, 0, 1])
    which = ("tensor_count", "entry_count")[number % 2]
    return gguf.write(parsed, **{which: count}), REFUSE


def lengths(trial, number):
    """A length or count inside the header is huge."""
    content, parsed = whole(trial)
    place = trial.random.choice([edge for edge in parsed.edges if edge + 8 < parsed.data_at])
    return content[:place] + struct.pack("<Q", trial.random.choice(HUGE)) + content[place + 8:], ANY


def fields(trial, number):
    """A metadata entry with another value, of its own type or of another."""
    _, parsed = whole(trial)
    entry = parsed.entries[number % len(parsed.entries)]
    kind = trial.random.choice([entry.kind, trial.random.choice(list(gguf.NUMBERS)), gguf.STRING, gguf.ARRAY])
    entry.value = {gguf.STRING: trial.random.choice([b"", b"x", hostile.ESCAPES.encode(), b"\xff\xfe", b"A" * 100_000]),
                   gguf.ARRAY: (trial.random.choice([4, 8]), [])}.get(kind)
    if entry.value is None:
        entry.value = number_of(kind, trial.random)
    entry.kind = kind
    return gguf.write(parsed), ANY


def number_of(kind, random):
    form = gguf.NUMBERS[kind]
    if form in "fd":
        return random.choice([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-40, 3e38, 0.5])
    size = struct.calcsize(form) * 8
    signed = form.islower()
    return form == "?" or random.choice([0, 1, 2, 7, -1 if signed else 3, 2**(size - 1) - 1, 2**(size - signed) - 1])


def not_a_number(trial, number):
    """A float that the forward pass reads is not finite, or absurd."""
    _, parsed = whole(trial)
    floats = [e for e in parsed.entries if e.kind == 6]
    entry = floats[number % len(floats)]
    absurd = [1e-42, 3e38] if entry.key.endswith(b"freq_base") else []  # a norm's epsilon may be next to nothing
    entry.value = trial.random.choice([math.nan, math.inf, -math.inf, -1.0, *absurd])
    return gguf.write(parsed), REFUSE


def strings(trial, number):
    """Control characters wherever a name or a text stands."""
    _, parsed = whole(trial)
    escapes = trial.random.choice([hostile.ESCAPES.encode(), b"\x1b[2J", b"\x07", b"\xc2\x9b", b"\xff", b"\r", b"\x00",
                                   "\u202e".encode()])
    way = number % 4
    if way == 0:
        trial.random.choice(parsed.tensors).name += escapes
    elif way == 1:
        trial.random.choice([e for e in parsed.entries if e.kind == gguf.STRING]).value += escapes
    elif way == 2:
        trial.random.choice(parsed.entries).key += escapes
    else:
        _, tokens = parsed.entry(b"tokenizer.ggml.tokens").value
        for _ in range(40):
            i = trial.random.randrange(len(tokens))
            tokens[i] = escapes + str(i).encode()
    return gguf.write(parsed), ANY


def extents(trial, number):
    _, parsed = whole(trial)
    tensor = trial.random.choice(parsed.tensors)
    i = trial.random.randrange(len(tensor.extents))
    tensor.extents[i] = trial.random.choice([0, tensor.extents[i] + 32, tensor.extents[i] * 2, *HUGE])
    return gguf.write(parsed), REFUSE


def dimensions(trial, number):
    _, parsed = whole(trial)
    tensor = trial.random.choice(parsed.tensors)
    tensor.extents = trial.random.choice([[], [1] * 5, [1] * 1000, tensor.extents + [2], [2**33, 2**33]])
    return gguf.write(parsed), REFUSE


def types(trial, number):
    _, parsed = whole(trial)
    trial.random.choice(parsed.tensors).kind = trial.random.choice([*range(0, 45), 255, 2**31, 2**32 - 1])
    return gguf.write(parsed), ANY


def offsets(trial, number):
    _, parsed = whole(trial)
    tensor = trial.random.choice(parsed.tensors)
    tensor.offset = trial.random.choice([tensor.offset + 1, tensor.offset + 7, len(parsed.data), len(parsed.data) + 32,
                                         *HUGE])
    return gguf.write(parsed), REFUSE


def repeated(trial, number):
    _, parsed = whole(trial)
    some = (parsed.tensors, parsed.entries)[number % 2]
    some.insert(trial.random.randrange(len(some)), trial.random.choice(some))
    return gguf.write(parsed), REFUSE


def missing(trial, number):
    """Without a tensor or a key that every model of the family has."""
    _, parsed = whole(trial)
    if number % 2:
        parsed.tensors.remove(trial.random.choice([t for t in parsed.tensors if t.name != b"output.weight"]))
    else:
        needed = [e for e in parsed.entries if e.key.endswith((b".block_count", b".embedding_length", b"architecture",
                                                               b".head_count", b".feed_forward_length"))]
        parsed.entries.remove(trial.random.choice(needed))
    return gguf.write(parsed), REFUSE


def alignment(trial, number):
    _, parsed = whole(trial)
    value = trial.random.choice([0, 1, 3, 12, 2**31, 2**32 - 1])
    parsed.entries.append(gguf.Entry(b"general.alignment", 4, value))
    return gguf.write(parsed), REFUSE if value != 1 else ANY


def version(trial, number):
    _, parsed = whole(trial)
    parsed.version = trial.random.choice([0, 1, 4, 0x03000000, 2**32 - 1])
    return gguf.write(parsed), REFUSE


def flips(trial, number):
    content, parsed = whole(trial)
    last = parsed.data_at if number % 4 else len(content)
    return hostile.flipped(content, trial.random, trial.random.choice([1, 1, 2, 8]), last=last), ANY


def splices(trial, number):
    content, parsed = whole(trial)
    return hostile.spliced(content, trial.random, parsed.data_at), ANY


def unchanged(trial, number):
    """Another file of the same model: entries in another order, one more that is unknown."""
    _, parsed = whole(trial)
    trial.random.shuffle(parsed.entries)
    parsed.entries.append(gguf.Entry(b"attack.note", gguf.STRING, b"no meaning"))
    return gguf.write(parsed), SAME


NOT_FINITE = [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\x00\x00\x80\xff", b"\xff\xff\xff\xff"]
NOT_FINITE_HALF = [b"\x00\x7e", b"\x00\x7c", b"\x00\xfc", b"\xff\xff"]


def not_finite(trial, number):
    """One weight that every token meets is NaN or infinite; of q8_0 it is a block's scale."""
    dtype = ("f32", "q8_0")[number % 2]
    content, parsed = whole(trial, dtype)
    tensor = trial.random.choice([t for t in parsed.tensors if t.name != b"token_embd.weight"])
    values = math.prod(tensor.extents)
    if tensor.kind == 0:  # f32
        place, new = trial.random.randrange(values) * 4, trial.random.choice(NOT_FINITE)
    else:  # blocks of a scale in f16 and 32 bytes
        place, new = trial.random.randrange(values // 32) * 34, trial.random.choice(NOT_FINITE_HALF)
    place += parsed.data_at + tensor.offset
    return content[:place] + new + content[place + len(new):], REFUSE


# Kind: how many cases in the small and in the full attack, and the function.
KINDS = {
    "truncated": (3, 400, truncated),
    "trailing": (1, 40, trailing),
    "overlapping": (1, 80, overlapping),
    "counts": (2, 100, counts),
    "lengths": (2, 200, lengths),
    "fields": (4, 500, fields),
    "not-a-number": (1, 40, not_a_number),
    "strings": (4, 240, strings),
    "extents": (2, 120, extents),
    "dimensions": (1, 60, dimensions),
    "types": (2, 120, types),
    "offsets": (2, 120, offsets),
    "repeated": (2, 60, repeated),
    "missing": (2, 60, missing),
    "alignment": (1, 30, alignment),
    "version": (1, 20, version),
    "flips": (4, 400, flips),
    "splices": (2, 160, splices),
    "unchanged": (1, 20, unchanged),
}
