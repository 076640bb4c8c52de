"""Unexpected values, and JSON documents with one of them inside."""
import json

ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\u009b31m\u202egnp"
NOT_JSON = ["NaN", "Infinity", "-Infinity", "1e999", "01", "+1", "'x'", "nul", "{]", "\x00", "[" * 5000, '"\\ud800"',
            "// no"]
VALUES = ["-1", "0", "1", "1.5", "-0.0", "5e-324", "1e308", "1e-30", "2147483648", "4294967296", "9223372036854775808",
          "18446744073709551615", "18446744073709551616", "1" * 400, "true", "null", "[]", "{}", "[1]", "[[[[[]]]]]",
          '""', '"5"', '"x"', json.dumps(ESCAPES), json.dumps("\u0000"), json.dumps("long " * 20000),
          "[" * 900 + "]" * 900, "[" + "0," * 20000 + "0]"]


def places(value, path=()):
    """Every place in a document, from the outside in."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, path + (key,))


def at(value, path):
    for key in path:
        value = value[key]
    return value


MARK = "the value is put here"


def with_value(document, path, raw):
    """The document's text with `raw`, which need not be JSON, in one place."""
    if not path:
        return raw
    changed = json.loads(json.dumps(document))
    at(changed, path[:-1])[path[-1]] = MARK
    return json.dumps(changed, ensure_ascii=False).replace(json.dumps(MARK), raw)


def without(document, path):
    changed = json.loads(json.dumps(document))
    del at(changed, path[:-1])[path[-1]]
    return json.dumps(changed)


def flipped(content, random, count, first=0, last=None):
    """Some bits of some bytes turned over."""
    content = bytearray(content)
    for _ in range(count):
        content[random.randrange(first, last or len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


def spliced(content, random, last=None):
    """A stretch removed, repeated, zeroed or filled."""
    last = last or len(content)
    begin = random.randrange(last)
    end = min(len(content), begin + random.choice([1, 2, 4, 8, 64, 1000]))
    middle = random.choice([b"", content[begin:end] * 2, bytes(end - begin), b"\xff" * (end - begin),
                            random.randbytes(end - begin)])
    return content[:begin] + middle + content[end:]


def damaged_json(document, random):
    """One of the ways in which a JSON file can be wrong; most are still JSON."""
    path = random.choice([p for p in places(document) if p])
    way = random.randrange(8)
    if way == 0:
        return without(document, path)
    if way == 1:
        whole = json.dumps(document)
        return whole[:random.randrange(len(whole))]
    if way == 2:
        return with_value(document, path, random.choice(NOT_JSON))
    if way == 3:
        return flipped(json.dumps(document).encode(), random, 3).decode(errors="surrogateescape")
    return with_value(document, path, random.choice(VALUES))
