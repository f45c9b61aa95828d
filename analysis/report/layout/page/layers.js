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
      rows.set(i, opened.has(i) ? [tr, tr.nextSibling] : [tr]);
      heights.set(i, rows.get(i).reduce((sum, r) => sum + r.offsetHeight, 0));
      tops = null;
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
  const BESIDE = 8; // rows above and below what is seen
  let found = [];
  let tall = 40; // of a row that is closed, as the first ones are
  const heights = new Map(); // of the rows that were drawn, with what is open below them
  let tops = null; // where each row begins, and where the last one ends; null: a height changed
  let at = null; // first and last row that are drawn
  let rows = new Map(); // their elements
  const space = () => el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colspan: columns.length }));
  const above = space();
  const below = space();
  function place() {
    if (tops && tops.length === found.length + 1) return;
    tops = new Float64Array(found.length + 1);
    for (let k = 0; k < found.length; k += 1) tops[k + 1] = tops[k] + (heights.get(found[k]) || tall);
  }
  function rowAt(y) { // the last row that begins at y or above
    let low = 0;
    let high = found.length;
    while (low < high - 1) { const k = (low + high) >> 1; if (tops[k] <= y) low = k; else high = k; }
    return low;
  }
  function filled(force) {
    place();
    const from = rowAt(box.scrollTop);
    const to = Math.min(found.length, rowAt(box.scrollTop + box.clientHeight) + 1);
    if (!force && at && (at[0] === 0 || from - at[0] > BESIDE / 2) && (at[1] === found.length || at[1] - to > BESIDE / 2) && from >= at[0] && to <= at[1]) return;
    // A jump, as of a scroll bar that is dragged, is drawn at once: with little beside it.
    const beside = force || (at && from < at[1] && to > at[0]) ? BESIDE : 2;
    const first = Math.max(0, from - beside);
    const last = Math.min(found.length, to + beside);
    at = [first, last];
    const focus = document.activeElement && table.contains(document.activeElement) ? document.activeElement.dataset.layer : undefined;
    const next = new Map();
    for (const i of found.slice(first, last)) next.set(i, (!force && rows.get(i)) || [line(i), ...(opened.has(i) ? [detail(layers[i])] : [])]);
    const body = table.tBodies[0];
    if (force || ![...next.keys()].some((i) => rows.has(i))) body.replaceChildren(above, ...[...next.values()].flat(), below);
    else {
      body.prepend(above);
      body.append(below);
      for (const [i, drawn] of rows) if (!next.has(i)) for (const r of drawn) r.remove();
      let after = above; // rows that stay keep their place: only new ones are put in
      for (const drawn of next.values()) for (const r of drawn) { if (after.nextSibling !== r) after.after(r); after = r; }
    }
    if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, "No layer matches.")));
    const fresh = [...next].filter(([i]) => rows.get(i) !== next.get(i));
    rows = next;
    const measure = (row, height) => { if (height > 0) row.style.height = `${height}px`; else row.remove(); };
    measure(above, tops[first]);
    measure(below, tops[found.length] - tops[last]);
    for (const [i, drawn] of fresh) {
      const height = drawn.reduce((sum, r) => sum + r.offsetHeight, 0);
      if (height && height !== (heights.get(i) || tall)) tops = null;
      if (height) heights.set(i, height);
    }
    if (focus !== undefined && !table.contains(document.activeElement)) { const button = table.querySelector(`[data-layer="${focus}"]`); if (button) button.focus({ preventScroll: true }); }
  }
  // Columns as wide as the first rows make them, and from then on fixed: rows that come and go move
  // none, nor is the whole table laid out anew for each of them.
  const heads = [...table.tHead.rows[0].cells];
  function widths() {
    table.style.tableLayout = table.style.width = "";
    for (const th of heads) th.style.width = "";
    if (!found.length || !table.offsetWidth) return;
    const wide = [...heads.map((th) => th.getBoundingClientRect().width), table.offsetWidth];
    heads.forEach((th, k) => { th.style.width = `${wide[k]}px`; });
    table.style.width = `${wide[heads.length]}px`;
    table.style.tableLayout = "fixed";
  }
  function draw() {
    found = layers.map((_, i) => i).filter((i) => (side === "" || sideLabel(layers[i]) === side) && (!needle || haystack()[i].includes(needle)));
    if (order !== null) {
      const value = columns[order.column][1];
      found.sort((a, b) => compare(value(layers[a]), value(layers[b]), order.direction));
    }
    box.scrollTop = 0;
    tops = null;
    filled(true);
    widths();
    if (heights.size) tall = [...heights.values()].reduce((sum, h) => sum + h, 0) / heights.size || tall;
    tops = null;
    filled(true);
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
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; heights.clear(); draw(); } });
  draw();
}
