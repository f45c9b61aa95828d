// Elements. Text is only ever set as text.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}
// A long name may break after a dot or a slash; what is copied has no break in it.
const breaks = (text) => text.split(/(?<=[./+_])(?=[^./+_\d])|(?<=[/+_])(?=\d)|(?<=\D\.)(?=\d)/).flatMap((part, k) => (k ? [el("wbr"), part] : [part]));
const nameOf = (text, limit, cls = "name") => el("bdi", { class: cls, title: visible(text) }, ...breaks(short(text, limit)));
const maybe = (text, limit) => (text === null || text === undefined || text === "" ? el("span", { class: "unknown" }, "–") : nameOf(text, limit));
const sideLabel = (layer) => (layer.side === null ? layer.label : sides[layer.side].label);

// A heading's button: none -> first -> other -> none. Calls back with the direction or null.
function sorter(th, first, chosen) {
  const button = el("button", { type: "button" });
  button.append(...th.childNodes);
  th.append(button);
  th.setAttribute("aria-sort", "none");
  button.addEventListener("click", () => {
    const now = th.getAttribute("aria-sort");
    const other = first === "ascending" ? "descending" : "ascending";
    const next = now === "none" ? first : now === first ? other : "none";
    for (const t of th.parentNode.children) if (t.hasAttribute("aria-sort")) t.setAttribute("aria-sort", "none");
    th.setAttribute("aria-sort", next);
    chosen(next === "none" ? null : next === "descending" ? -1 : 1);
  });
}
// Unknown goes last in both directions; equal rows keep the order of the model.
function compare(a, b, direction) {
  const x = a === "" || a === undefined ? null : a;
  const y = b === "" || b === undefined ? null : b;
  if (x === null || y === null) return (x === null) - (y === null);
  if (typeof x === "number" && typeof y === "number") return (x - y) * direction;
  return String(x).localeCompare(String(y), "en", { numeric: true }) * direction;
}
