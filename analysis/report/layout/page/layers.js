// The layers of the engines: sorted, filtered, opened one by one. Of many rows only those near the
// part that is seen are in the page, between two rows as high as what is left out.
const table = $("layer-table");
if (table) {
  const counted = layers.some((r) => r.counters);
  const columns = [
    ["name", (r) => r.name], ["side", (r) => sideLabel(r)], ["kind", (r) => r.kind], ["rule", (r) => r.rule],
    ["calls", (r) => r.calls], ["kernels", (r) => r.kernels], ["time", (r) => r.time[0]], ["share", (r) => r.share],
    ...(counted ? [["bound", (r) => r.counters && r.counters.bound], ["peak", (r) => r.counters && r.counters.peak && r.counters.peak[1]], ["bytes", (r) => r.counters && r.counters.bytes]] : []),
    ["in", (r) => r.in], ["out", (r) => r.out], ["compute", (r) => r.compute], ["tactic", (r) => r.tactic],
  ];
  let texts = null; // what is searched, made when it is
  const haystack = () => (texts = texts || layers.map((r) => [r.name, r.kind, r.rule, r.tactic || "", r.compute || "", ...r.modules].map(visible).join("\n").toLowerCase()));
  const opened = new Set();
  let order = { column: 6, direction: -1 };
  let needle = "";
  let side = "";

  function detail(r) {
    const nodes = el("ul", {}, ...r.nodes.map(([name, op, status]) => el("li", {}, nameOf(name, 400), " ", el("span", { class: "muted" }, [op, status || "status unknown"].filter((x) => x).map((x) => short(x, 40)).join(", ")))));
    const modulesList = el("ul", {}, ...r.modules.map((m) => el("li", {}, nameOf(m || "(model)", 400))));
    return el("tr", { class: "detail" }, el("td", { colspan: columns.length }, el("dl", {},
      el("dt", {}, "Name"), el("dd", {}, el("bdi", { class: "name" }, short(r.name, 4000))),
      el("dt", {}, "Rule"), el("dd", {}, el("bdi", {}, short(r.rule, 40)), rules.has(r.rule) ? `: ${rules.get(r.rule)}` : ""),
      el("dt", {}, "Modules"), el("dd", {}, r.modules.length ? modulesList : "none"),
      el("dt", {}, "Nodes"), el("dd", {}, r.nodes.length ? nodes : "none"),
      el("dt", {}, "Floor"), el("dd", { class: "num" }, floorOf(r.floor)),
      ...(r.counters ? countersOf(r.counters) : []),
      el("dt", {}, "Exactly"), el("dd", { class: "num" }, `${exact(r.time[0])}, 95 % ${exact(r.time[1])} to ${exact(r.time[2])}, n ${r.time[3]}`))));
  }
  function countersOf(w) {
    const kernels = w.kernels.map(([name, launches, measured, text]) => el("li", {}, nameOf(name, 400), " ", el("span", { class: "muted" }, `${measured} of ${launches} launches measured; ${text}`)));
    return [el("dt", {}, "Why"), el("dd", {}, w.text), el("dt", {}, "Counters"), el("dd", {}, w.facts.join(", ")), el("dt", {}, "Kernels"), el("dd", {}, el("ul", {}, ...kernels))];
  }
  const boundCells = (w) => [el("td", { title: w ? w.text : null }, maybe(w && w.bound, 20)), el("td", { class: "right num" }, percent(w && w.peak && w.peak[1])), el("td", { class: "right num" }, ratio(w && w.bytes))];
  function line(i) {
    const r = layers[i];
    const button = el("button", { type: "button", class: "open", "aria-expanded": String(opened.has(i)), "data-layer": i }, nameOf(r.name, 120));
    button.addEventListener("click", () => {
      const tr = button.closest("tr");
      if (opened.delete(i)) tr.nextSibling.remove(); else {
        opened.add(i);
        tr.after(detail(r));
      }
      heights.delete(i);
      button.setAttribute("aria-expanded", String(opened.has(i)));
    });
    const [median, low, high, n] = r.time;
    const sub = known(low) && known(high) ? `${timeRange(low, high)}, n ${n}` : n || known(median) ? `no interval, n ${n}` : "";
    const count = (v) => el("td", { class: "right num" }, known(v) ? v.toLocaleString("en-US") : "–");
    const text = (v, limitTo) => el("td", {}, maybe(v, limitTo));
    return el("tr", { class: known(r.side) && sides[r.side].wrong ? "wrong" : null },
      el("th", { scope: "row" }, button),
      el("td", {}, el("bdi", {}, short(sideLabel(r), 60))), text(r.kind, 40),
      el("td", { title: rules.get(r.rule) || "" }, maybe(r.rule, 40)),
      count(r.calls), count(r.kernels),
      el("td", { class: "right", title: exact(median) }, el("span", { class: "num" }, time(median)), el("small", {}, sub)),
      el("td", { class: "right num" }, percent(r.share)),
      ...(counted ? boundCells(r.counters) : []),
      text(r.in, 20), text(r.out, 20), text(r.compute, 20), text(r.tactic, 60));
  }
  const box = table.closest(".scroll");
  const BESIDE = 20; // rows above and below what is seen
  let found = [];
  let tall = 40; // of a row that is closed, as the first ones are
  const heights = new Map(); // of the rows that were drawn, with what is open below them
  let at = null; // first and last row that are drawn
  const heightOf = (i) => heights.get(i) || tall;
  const space = (height) => el("tr", { class: "space", "aria-hidden": "true", style: `height:${height}px` }, el("td", { colspan: columns.length }));
  function filled(force) {
    const from = box.scrollTop;
    const to = from + box.clientHeight;
    let first = 0;
    let top = 0;
    while (first < found.length && top + heightOf(found[first]) < from - BESIDE * tall) { top += heightOf(found[first]); first += 1; }
    let last = first;
    let bottom = top;
    while (last < found.length && (bottom < to + BESIDE * tall || last < first + 2 * BESIDE)) { bottom += heightOf(found[last]); last += 1; }
    if (!force && at && Math.abs(at[0] - first) < BESIDE / 2 && Math.abs(at[1] - last) < BESIDE / 2) return;
    at = [first, last];
    const focus = document.activeElement && table.contains(document.activeElement) ? document.activeElement.dataset.layer : undefined;
    const below = found.slice(last).reduce((sum, i) => sum + heightOf(i), 0);
    const body = document.createDocumentFragment();
    if (top) body.append(space(top));
    const rows = new Map();
    for (const i of found.slice(first, last)) {
      rows.set(i, [line(i), ...(opened.has(i) ? [detail(layers[i])] : [])]);
      body.append(...rows.get(i));
    }
    if (below) body.append(space(below));
    if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, "No layer matches.")));
    table.tBodies[0].replaceChildren(body);
    for (const [i, drawn] of rows) heights.set(i, drawn.reduce((sum, r) => sum + r.offsetHeight, 0));
    if (focus !== undefined) { const button = table.querySelector(`[data-layer="${focus}"]`); if (button) button.focus({ preventScroll: true }); }
  }
  function draw() {
    found = layers.map((_, i) => i).filter((i) => (side === "" || sideLabel(layers[i]) === side) && (!needle || haystack()[i].includes(needle)));
    if (order !== null) {
      const value = columns[order.column][1];
      found.sort((a, b) => compare(value(layers[a]), value(layers[b]), order.direction));
    }
    box.scrollTop = 0;
    filled(true);
    if (heights.size) tall = [...heights.values()].reduce((sum, h) => sum + h, 0) / heights.size || tall;
    $("layer-count").textContent = needle || side !== "" ? `${found.length} of ${layers.length} layers` : "";
  }
  let waiting = false;
  box.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; filled(false); });
  });
  [...table.tHead.rows[0].cells].forEach((th, i) => {
    sorter(th, th.classList.contains("right") ? "descending" : "ascending", (direction) => {
      order = direction === null ? null : { column: i, direction };
      draw();
    });
    if (i === 6) th.setAttribute("aria-sort", "descending");
  });
  for (const labelText of new Set(layers.map(sideLabel))) $("layer-side").append(el("option", { value: labelText }, short(labelText, 60)));
  $("layer-side").addEventListener("change", (event) => { side = event.target.value; draw(); });
  $("layer-filter").addEventListener("input", (event) => { needle = event.target.value.trim().toLowerCase(); draw(); });
  draw();
}
