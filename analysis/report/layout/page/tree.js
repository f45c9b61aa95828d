// The tree: which of its rows are open, shown, sorted and found, and what clicks and keys do.
const PAGE = 300;
const tree = $("tree");
if (tree) {
  const children = new Map();
  modules.forEach((m, i) => {
    if (!children.has(m.parent)) children.set(m.parent, []);
    children.get(m.parent).push(i);
  });
  const open = new Set(data.open.map((i) => `m${i}`));
  const shown = new Set();
  function showPanel() {
    const all = panels[panel].sides;
    shown.clear();
    for (const i of all) shown.add(i);
    if (window.matchMedia("(max-width: 700px)").matches && all.length > 2) {
      const firstOf = (kind) => all.find((i) => (sides[i].side === "engine") === kind);
      const few = [firstOf(true), firstOf(false)].filter((i) => i !== undefined);
      shown.clear();
      for (const i of few.length === 2 ? few : all.slice(0, 2)) shown.add(i);
    }
  }
  // In the order of the panel, then what else was chosen.
  const ordered = () => [...panels[panel].sides.filter((i) => shown.has(i)), ...[...shown].filter((i) => !panels[panel].sides.includes(i)).sort((a, b) => a - b)];
  showPanel();
  let sort = null; // { side: number or "name", direction }
  let needle = "";
  let matched = null; // Set of modules that match, or null
  let within = null; // Set of modules with a match inside
  let closed = new Set(); // closed by hand while a filter holds them open
  let limit = PAGE;
  let current = "m0";
  let items = [];

  // What is known of modules beside their times: memory, changes, the optimizer's share.
  const columns = () => (panels[panel].columns || []);
  const moreOf = (i, k) => (modules[i].more || [])[k] || null;
  // Difference and ratio of two sides: those of the first screen, until others are chosen.
  let two = pair();
  const changes = () => (two ? ["Difference", "Ratio"] : []);
  const change = (i) => changeOf(...two.map((s) => modules[i].costs[s]));
  const spanOf = () => shown.size + changes().length + columns().length + 1;
  const sideShown = (side) => side === null || side === undefined || shown.has(side);
  const moduleItem = (i, level, trail) => ({ key: `m${i}`, type: "module", i, level, hit: trail || (matched !== null && matched.has(i)) });
  function inner(item) {
    const level = item.level + 1;
    if (item.type === "node" || item.type === "kernel") return [];
    if (item.type === "group") return item.nodes.map((n) => ({ ...n, level }));
    if (item.type === "layer") {
      const kernels = kernelsOf(item.i).map((kernel, k) => ({ key: `${item.key}/k${k}`, type: "kernel", kernel, level }));
      return [...kernels, ...layers[item.i].nodes.map((node, k) => ({ key: `${item.key}/n${k}`, type: "node", node, level, base: item.base }))];
    }
    const m = modules[item.i];
    const base = m.kind === "module" ? m.path : m.parent === null ? "" : modules[m.parent].path;
    let list = (children.get(item.i) || []).map((i) => moduleItem(i, level, item.hit));
    if (matched !== null && !item.hit) list = list.filter((c) => matched.has(c.i) || within.has(c.i));
    if (sort !== null) {
      const more = (c) => (moreOf(c.i, sort.column) || [null])[0];
      const value = sort.side === "name" ? (c) => modules[c.i].name : sort.side === "change" ? (c) => change(c.i).sort[sort.column] : sort.side === "more" ? more : (c) => whole(modules[c.i].costs[sort.side]);
      list.sort((a, b) => compare(value(a), value(b), sort.direction));
    }
    let own = m.layers.filter((i) => sideShown(layers[i].side)).map((i) => ({ key: `${item.key}/l${i}`, type: "layer", i, level, base }));
    if (sort !== null) {
      const value = sort.side === "name" ? (c) => layers[c.i].name : (c) => (layers[c.i].side === sort.side ? layers[c.i].time[0] : null);
      own = own.sort((a, b) => compare(value(a), value(b), sort.direction));
    }
    const loose = m.loose.filter((n) => sideShown(n[3])).map((node, k) => ({ key: `${item.key}/f${k}`, type: "node", node, level, base }));
    if (loose.length <= 3) return [...list, ...own, ...loose];
    return [...list, ...own, { key: `${item.key}/f`, type: "group", nodes: loose, level }];
  }
  const kernelsOf = (i) => (layers[i].counters ? layers[i].counters.kernels : []);
  const hasInner = (item) => (item.type === "group" ? true : item.type === "layer" ? layers[item.i].nodes.length > 0 || kernelsOf(item.i).length > 0
    : item.type === "module" && ((children.get(item.i) || []).length > 0 || modules[item.i].layers.some((i) => sideShown(layers[i].side)) || modules[item.i].loose.some((n) => sideShown(n[3]))));
  function isOpen(item) {
    if (within !== null && item.type === "module" && within.has(item.i)) return !closed.has(item.key);
    return open.has(item.key);
  }
  function setOpen(item, value) {
    if (within !== null && item.type === "module" && within.has(item.i)) {
      if (value) closed.delete(item.key); else closed.add(item.key);
    }
    if (value) open.add(item.key); else open.delete(item.key);
  }
  function flatten() {
    const result = [];
    const walk = (list) => {
      list.forEach((item, k) => {
        item.position = k + 1;
        item.size = list.length;
        item.more = hasInner(item);
        result.push(item);
        if (item.more && isOpen(item)) walk(inner(item));
      });
    };
    let roots = (children.get(null) || []).map((i) => moduleItem(i, 1, false));
    if (matched !== null) roots = roots.filter((c) => matched.has(c.i) || within.has(c.i));
    walk(roots);
    return result;
  }
  function row(item) {
    const tr = el("tr", {
      role: "row", class: item.type, "data-key": item.key,
      "aria-level": item.level, "aria-posinset": item.position, "aria-setsize": item.size,
      "aria-expanded": item.more ? String(isOpen(item)) : null,
    });
    const twist = item.more ? el("span", { class: "twist", "aria-hidden": "true" }, "▶") : null;
    // A node has no time of its own: its name may use the whole line.
    const span = item.type === "node" || item.type === "kernel" || item.type === "group" ? spanOf() : null;
    tr.append(el("th", { scope: "row", role: "rowheader", colspan: span, style: `--level:${item.level - 1}` }, el("span", { class: "cell" }, twist, ...label(item, needle))));
    const found = item.type === "module" && changes().length ? change(item.i) : null;
    for (const text of span || !changes().length ? [] : [found && found.difference, found && found.ratio]) {
      tr.append(el("td", { class: "cost change", role: "gridcell" }, text === null ? "" : el("span", { class: text === "–" ? "num unknown" : "num" }, tie(text))));
    }
    for (const side of span ? [] : ordered()) {
      if (item.type === "module") tr.append(costCell(modules[item.i].costs[side] || null, modules[item.i].counters[side], sides[side].wrong, (modules[item.i].errors || [])[side]));
      else if (item.type === "layer" && layers[item.i].side === side) {
        const r = layers[item.i];
        tr.append(costCell([r.time[0], r.time[1], r.time[2], 0, r.share], r.counters, sides[side].wrong));
      } else tr.append(el("td", { class: "cost", role: "gridcell" }));
    }
    for (const k of span ? [] : columns()) {
      const known = item.type === "module" ? moreOf(item.i, k) : null;
      tr.append(el("td", { class: "cost", role: "gridcell" }, item.type === "module" ? el("span", { class: known ? "num" : "num unknown" }, known ? known[1] : "–") : ""));
    }
    return tr;
  }
  // A row that looks as it did is used again.
  let drawn = new Map();
  function rowFor(item, next) {
    const looks = [item.position, item.size, item.more && isOpen(item), needle, two, ...ordered()].join();
    const before = drawn.get(item.key);
    const tr = before && before.looks === looks ? before.tr : row(item);
    tr.tabIndex = item.key === current ? 0 : -1;
    next.set(item.key, { looks, tr });
    return tr;
  }
  function draw(focus) {
    const every = flatten();
    items = every.slice(0, limit);
    if (!items.some((item) => item.key === current)) current = items.length ? items[0].key : "";
    const body = document.createDocumentFragment();
    const next = new Map();
    for (const item of items) body.append(rowFor(item, next));
    drawn = next;
    if (every.length > limit) {
      const more = el("button", { type: "button", on: { click: () => { limit += PAGE; draw(false); } } }, `Show ${Math.min(PAGE, every.length - limit)} more of ${every.length} rows`);
      body.append(el("tr", { role: "row", class: "more" }, el("td", { role: "gridcell", colspan: spanOf() }, more)));
    }
    if (!items.length) body.append(el("tr", { role: "row" }, el("td", { role: "gridcell", colspan: spanOf(), class: "muted" }, "No module matches.")));
    tree.tBodies[0].replaceChildren(body);
    if (focus) focusRow(current);
  }
  // "#module:transformer.h.0": open what is around it, and go there.
  function goTo(hash) {
    if (!hash.startsWith("#module:")) return;
    let path;
    try { path = decodeURIComponent(hash.slice("#module:".length)); } catch { return; }
    const at = modules.findIndex((m) => m.kind === "module" && m.path === path);
    if (at < 0) return;
    if (needle) { $("tree-filter").value = ""; $("tree-filter").dispatchEvent(new Event("input")); }
    for (let up = modules[at].parent; up !== null; up = modules[up].parent) open.add(`m${up}`);
    current = `m${at}`;
    const place = flatten().findIndex((item) => item.key === current);
    limit = Math.max(limit, Math.ceil((place + 1) / PAGE) * PAGE);
    draw(true);
    const row = rowOf(current);
    if (row) row.scrollIntoView({ block: "center" });
  }
  const rowOf = (key) => [...tree.tBodies[0].rows].find((r) => r.dataset.key === key);
  function focusRow(key) {
    const before = rowOf(current);
    if (before) before.tabIndex = -1;
    current = key;
    const now = rowOf(key);
    if (now) { now.tabIndex = 0; now.focus(); }
  }
  function toggle(item, value) {
    setOpen(item, value);
    current = item.key;
    draw(true);
  }
  function head() {
    const tr = el("tr", { role: "row" });
    const add = (th, side, first) => {
      sorter(th, first, (direction) => { sort = direction === null ? null : { side, direction }; draw(false); });
      if (sort !== null && sort.side === side) th.setAttribute("aria-sort", sort.direction < 0 ? "descending" : "ascending");
      tr.append(th);
    };
    add(el("th", { scope: "col", role: "columnheader" }, "Module"), "name", "ascending");
    const addMore = (side, k, title, note, first) => {
      const th = el("th", { scope: "col", role: "columnheader", class: "right", title: note }, title);
      sorter(th, first, (direction) => { sort = direction === null ? null : { side, column: k, direction }; draw(false); });
      if (sort !== null && sort.side === side && sort.column === k) th.setAttribute("aria-sort", sort.direction < 0 ? "descending" : "ascending");
      tr.append(th);
    };
    const against = two && two.map((s) => sides[s].label).reverse().join(" against ");
    changes().forEach((title, k) => addMore("change", k, title, against, k ? "descending" : "ascending"));
    const addSide = (i) => add(el("th", { scope: "col", role: "columnheader", class: "right" }, ...(sides[i].wrong ? [el("span", { class: "isbad", title: sides[i].wrong }, "✗"), " "] : []), ...(sides[i].doubt ? [el("span", { class: "doubt", title: `not settled: ${sides[i].doubt}` }, "?"), " "] : []), nameOf(sides[i].label, 60)), i, "descending");
    for (const i of ordered()) addSide(i);
    for (const k of columns()) addMore("more", k, data.columns[k].title, data.columns[k].note, "descending");
    tree.tHead.replaceChildren(tr);
    tree.style.setProperty("--sides", spanOf() - 1);
  }

  tree.setAttribute("role", "treegrid");
  tree.tHead.setAttribute("role", "rowgroup");
  tree.tBodies[0].setAttribute("role", "rowgroup");
  tree.addEventListener("click", (event) => {
    const tr = event.target.closest("tbody tr[data-key]");
    if (!tr || String(window.getSelection())) return;
    const item = items.find((x) => x.key === tr.dataset.key);
    if (item.more) toggle(item, !isOpen(item)); else focusRow(item.key);
  });
  tree.addEventListener("keydown", (event) => {
    const tr = event.target.closest("tbody tr[data-key]");
    if (!tr || event.target !== tr || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = items.findIndex((x) => x.key === tr.dataset.key);
    const item = items[at];
    const go = (k) => { if (k >= 0 && k < items.length) focusRow(items[k].key); };
    const parent = () => { for (let k = at - 1; k >= 0; k--) if (items[k].level < item.level) return k; return at; };
    const actions = new Map([
      ["ArrowDown", () => go(at + 1)],
      ["ArrowUp", () => go(at - 1)],
      ["Home", () => go(0)],
      ["End", () => go(items.length - 1)],
      ["ArrowRight", () => { if (item.more && !isOpen(item)) toggle(item, true); else if (item.more) go(at + 1); }],
      ["ArrowLeft", () => { if (item.more && isOpen(item)) toggle(item, false); else go(parent()); }],
      ["Enter", () => { if (item.more) toggle(item, !isOpen(item)); }],
      [" ", () => { if (item.more) toggle(item, !isOpen(item)); }],
    ]);
    const action = actions.get(event.key);
    if (action) { event.preventDefault(); action(); }
  });

  const lower = (texts) => texts.map(visible).join("\n").toLowerCase();
  const names = modules.map((m) => lower([m.name, m.cls || "", ...m.members]));
  const paths = modules.map((m) => lower([m.path]));
  $("tree-filter").addEventListener("input", (event) => {
    needle = event.target.value.trim().toLowerCase();
    limit = PAGE;
    closed = new Set();
    matched = within = null;
    if (needle) {
      matched = new Set();
      within = new Set();
      // What lies inside a match has its path too, but is no match of its own.
      modules.forEach((m, i) => {
        if (!names[i].includes(needle) && !(paths[i].includes(needle) && (m.parent === null || !paths[m.parent].includes(needle)))) return;
        matched.add(i);
        for (let up = modules[i].parent; up !== null && !within.has(up); up = modules[up].parent) within.add(up);
      });
    }
    $("tree-count").textContent = matched === null ? "" : `${matched.size} of ${modules.length} rows match`;
    draw(false);
  });
  $("tree-more").addEventListener("click", () => {
    // Modules first; layers and nodes are opened one by one.
    for (const item of flatten()) if (item.type === "module" && item.more && !isOpen(item) && (children.get(item.i) || []).length) setOpen(item, true);
    draw(false);
  });
  $("tree-less").addEventListener("click", () => { open.clear(); if (within !== null) for (const i of within) closed.add(`m${i}`); limit = PAGE; draw(false); });
  const boxes = sides.map((side, i) => {
    const box = el("input", { type: "checkbox", checked: shown.has(i) });
    box.addEventListener("change", () => {
      if (box.checked) shown.add(i); else shown.delete(i);
      if (sort !== null && sort.side === i && !box.checked) sort = null;
      head();
      draw(false);
    });
    $("tree-sides").append(el("label", {}, box, el("bdi", {}, short(side.label, 60))));
    return box;
  });
  // Any two sides, but for those whose times are no result.
  const right = sides.map((side, i) => (side.wrong ? null : i)).filter((i) => i !== null);
  const choices = right.length > 1 ? ["tree-under", "tree-over"].map((id) => $(id)) : [];
  function offered() {
    choices.forEach((select, k) => { select.value = two ? String(two[1 - k]) : ""; });
  }
  function compareTwo(chosen) {
    two = chosen;
    if (sort !== null && sort.side === "change" && !two) sort = null;
    head();
    draw(false);
  }
  for (const select of choices) {
    select.append(el("option", { value: "" }, "–"), ...right.map((i) => el("option", { value: i }, short(sides[i].label, 60))));
    select.addEventListener("change", () => {
      const [under, over] = choices.map((one) => one.value);
      compareTwo(under && over ? [Number(over), Number(under)] : null);
    });
  }
  if (!choices.length && $("tree-two")) $("tree-two").hidden = true;
  offered();
  rechosen.push(() => { compareTwo(pair()); offered(); });
  follow.push(() => {
    showPanel();
    boxes.forEach((box, i) => { box.checked = shown.has(i); });
    if (sort !== null && sort.side !== "change" && (sort.side === "more" ? !columns().includes(sort.column) : sort.side !== "name" && !shown.has(sort.side))) sort = null;
    head();
    draw(false);
  });
  head();
  draw(false);
  goTo(window.location.hash);
  window.addEventListener("hashchange", () => goTo(window.location.hash));
}
