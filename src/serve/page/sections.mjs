// Parts of a view that load on their own, so that one that fails does not take the others with it.

import { button, h } from "./dom.mjs";

// `load` returns the elements to show.
export function section(title, hint, load) {
  const body = h("div", { class: "section-body" });
  const refresh = button("Refresh", () => show(), { class: "quiet small" });
  async function show() {
    body.setAttribute("aria-busy", "true");
    refresh.disabled = true;
    if (!body.firstChild) body.append(h("p", { class: "muted" }, "Loading…"));
    try {
      body.replaceChildren(...[await load()].flat());
    } catch (error) {
      body.replaceChildren(h("p", { class: "failure", role: "alert" }, error.message));
    }
    refresh.disabled = false;
    body.removeAttribute("aria-busy");
  }
  show();
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, title), refresh), hint ? h("p", { class: "muted" }, hint) : null, body);
}

// Columns are {title, value(row), isNumber?, isLong?}.
export function table(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "muted" }, empty);
  const of = ({ isNumber, isLong }) => (isNumber ? "right" : isLong ? "long" : null);
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: of(column), scope: "col" }, column.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: of(column) }, column.value(row))))))));
}
