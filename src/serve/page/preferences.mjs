// Small things that the browser remembers: for good ("local"), or for this tab ("session"). A browser that refuses to is
// no reason to stop; then they last as long as the page.

const kept = { local: new Map(), session: new Map() };

export function recall(key, where = "local") {
  try {
    return globalThis[`${where}Storage`].getItem(key) ?? kept[where].get(key) ?? null;
  } catch {
    return kept[where].get(key) ?? null;
  }
}

// An empty value is forgotten.
export function remember(key, value, where = "local") {
  if (value) kept[where].set(key, value);
  else kept[where].delete(key);
  try {
    if (value) globalThis[`${where}Storage`].setItem(key, value);
    else globalThis[`${where}Storage`].removeItem(key);
  } catch {
    // It is in `kept`.
  }
}
