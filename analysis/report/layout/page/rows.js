// What a row of the tree says: a module, a layer, a kernel or a node by its name, and its cost.
function marked(text, limitTo, needle) {
  const shownText = short(text, limitTo);
  const at = needle ? shownText.toLowerCase().indexOf(needle) : -1;
  if (at < 0) return [shownText];
  return [shownText.slice(0, at), el("mark", {}, shownText.slice(at, at + needle.length)), shownText.slice(at + needle.length)];
}
// Inside a module its path says nothing new: "…/Gemm" for "transformer.h.0.mlp.c_fc/Gemm".
function relative(name, base) {
  return base ? name.split(`${base}.`).join("…").split(`${base}/`).join("…/") : name;
}
const inside = (name, base) => el("bdi", { class: "name", title: visible(name) }, ...breaks(short(relative(name, base), 90)));
function label(item, needle) {
  if (item.type === "module") {
    const m = modules[item.i];
    const parts = [el("bdi", { class: "name", title: visible(m.path || "the model") }, ...(m.name === "" ? ["(model)"] : marked(m.name, 80, needle)))];
    if (m.cls) parts.push(" ", el("bdi", { class: "muted" }, ...marked(m.cls, 40, needle)));
    if (m.kind === "block" && m.members.length > 1) parts.push(el("span", { class: "kind", title: `exact together: ${visible(m.members.join(", "))}` }, `block of ${m.members.length}`));
    else if (m.kind === "block") parts[0].classList.add("aside");
    else if (m.kind !== "module") parts.push(el("span", { class: "kind", title: "a cost of its own, no module's" }, "no module"));
    return parts;
  }
  if (item.type === "layer") {
    const r = layers[item.i];
    const parts = [inside(r.name, item.base), el("span", { class: "kind", title: `${visible(sideLabel(r))}. ${rules.get(r.rule) || ""}` }, "layer")];
    if (r.modules.length > 1) parts.push(" ", el("span", { class: "muted" }, `in ${r.modules.length} modules`));
    return parts;
  }
  if (item.type === "kernel") {
    const [name, launches, measured, text] = item.kernel;
    const given = measured < launches ? `, ${launches - measured} of ${launches} launches by a representative` : "";
    return [nameOf(name, 90), el("span", { class: "kind" }, "kernel"), " ", el("bdi", { class: "muted" }, `${text}${given}`)];
  }
  if (item.type === "group") return [el("span", { class: "muted" }, `${item.nodes.length} nodes that no layer runs`)];
  const [name, op, status, side] = item.node;
  const facts = [op, status || "status unknown", known(side) ? sides[side].label : null];
  const text = facts.filter((x) => x).map((x) => short(x, 40)).join(", ");
  return [inside(name, item.base), el("span", { class: "kind" }, "node"), " ", el("bdi", { class: "muted" }, text)];
}

function boundOf(w) {
  const of = w.peak ? `, ${percent(w.peak[1])}${w.peak[0] === w.bound ? "" : ` of ${w.peak[0]}`}` : "";
  return el("small", { class: `b-${w.bound || "unknown"}` }, `${w.bound || "unknown"}${of}`);
}
function costCell(c, w, grey, error) {
  const cell = el("td", { class: grey ? "cost wrong" : "cost", role: "gridcell", title: costExact(c) + (w ? `. ${w.text}` : "") }, el("span", { class: c && known(c[0]) ? "num" : "num unknown" }, costText(c)));
  if (c && known(c[0])) {
    const all = whole(c);
    const width = known(c[4]) && all > 0 ? Math.min(100, 100 * c[4]) : 0;
    const own = all > 0 ? (width * c[0]) / all : 0;
    cell.append(el("span", { class: "share" }, known(c[4]) ? percent(c[4]) : ""),
      el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: `width:${own.toFixed(2)}%` }), el("i", { class: "shared", style: `width:${(width - own).toFixed(2)}%` })));
  }
  if (w) cell.append(boundOf(w));
  if (error) cell.append(el("small", {}, error));
  if (c && known(c[0])) cell.append(el("small", { class: "ci" }, tie(costInterval(c))));
  return cell;
}
