"""Least squares of relative errors, and what is left when a group of points is left out. A point is (features, value, label)."""


def solve(matrix, right):
    n = len(right)
    rows = [list(row) + [right[i]] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def relative_fit(points):
    """Least squares of the relative error; a coefficient that would be negative is left out (0)."""
    active = list(range(len(points[0][0])))
    while True:
        rows = [[x[j] / y for j in active] for x, y, _ in points]
        scale = [max(abs(r[k]) for r in rows) or 1.0 for k in range(len(active))]
        rows = [[v / s for v, s in zip(r, scale)] for r in rows]
        size = range(len(active))
        normal = [[sum(r[i] * r[j] for r in rows) + (1e-12 if i == j else 0) for j in size] for i in size]
        found = [v / s for v, s in zip(solve(normal, [sum(r[i] for r in rows) for i in size]), scale)]
        if min(found) >= 0:
            break
        active.pop(found.index(min(found)))
    result = [0.0] * len(points[0][0])
    for k, j in enumerate(active):
        result[j] = found[k]
    return result


def predict(features, coefficients):
    return sum(a * b for a, b in zip(features, coefficients))


def errors(points, coefficients):
    return [(predict(x, coefficients) / y - 1, label) for x, y, label in points]


def quantile(values, q):
    ordered = sorted(abs(v) for v in values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


def leave_one_group_out(points, group_of):
    """Relative errors of each point predicted from a fit that never saw its group.

    A group is skipped when only it has a feature (the one head_dim 64 model of a sweep): nothing else could tell.
    """
    out = []
    for group in sorted({group_of(label) for _, _, label in points}):
        kept = [p for p in points if group_of(p[2]) != group]
        left = [p for p in points if group_of(p[2]) == group]
        features = range(len(points[0][0]))
        known = all(any(p[0][j] for p in kept) for j in features if any(p[0][j] for p in left))
        if known and len(kept) >= len(points[0][0]):
            out += errors(left, relative_fit(kept))
    return out
