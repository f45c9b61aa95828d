"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { sides, modules, layers } = data;
  const rules = new Map(Object.entries(data.rules));
  const PAGE = 300;
  const $ = (id) => document.getElementById(id);
  document.body.classList.add("script");

  // ---- Numbers and names, written as show.py writes them ----
  const UNITS = ["ns", "µs", "ms", "s"];
  const known = (v) => typeof v === "number" && Number.isFinite(v);

  function three(ns) {
    const sign = ns < 0 ? "−" : "";
    const n = Math.abs(ns);
    if (n < 1000) return [sign + n, "ns"];
    let power = String(n).length - 3;
    let digits = Math.floor((n + Math.floor(10 ** power / 2)) / 10 ** power);
    if (digits === 1000) { digits = 100; power += 1; }
    const unit = Math.min(Math.floor((power + 2) / 3), 3);
    const decimals = 3 * unit - power;
    if (decimals <= 0) return [sign + digits * 10 ** -decimals, UNITS[unit]];
    const text = String(digits).padStart(decimals + 1, "0");
    return [`${sign}${text.slice(0, -decimals)}.${text.slice(-decimals)}`, UNITS[unit]];
  }
  const time = (ns) => (known(ns) ? three(Math.round(ns)).join(" ") : "–");
  function timeRange(low, high) {
    if (!known(low) || !known(high)) return time(known(low) ? low : high);
    const [a, au] = three(Math.round(low));
    const [b, bu] = three(Math.round(high));
    if (a === b && au === bu) return `${a} ${au}`;
    if (a === "0") return `0 – ${b} ${bu}`;
    return au === bu ? `${a} – ${b} ${bu}` : `${a} ${au} – ${b} ${bu}`;
  }
  const exact = (ns) => (known(ns) ? `${Math.round(ns).toLocaleString("en-US")} ns` : "unknown");
  function percent(share) {
    if (!known(share)) return "–";
    const value = Math.abs(share) * 100;
    const sign = share < 0 ? "−" : "";
    if (value === 0) return "0 %";
    if (value > 100 + 1e-6 && Math.floor(value + 0.5) === 100) return `${sign}${Math.max(value, 100.1).toFixed(1)} %`;
    if (value >= 100) return `${sign}${Math.floor(value + 0.5).toLocaleString("en-US")} %`;
    if (value >= 99.95) return `${sign}99.9 %`;
    if (value >= 0.0995) return `${sign}${value.toFixed(1)} %`;
    return value >= 0.005 ? `${sign}${value.toFixed(2)} %` : `${sign}<0.01 %`;
  }
  const whole = (c) => (c && known(c[0]) ? c[0] + (c[3] || 0) : null);
  function costText(c) {
    if (!c || !known(c[0])) return "–";
    return known(c[3]) ? timeRange(c[0], c[0] + c[3]) : `≥ ${time(c[0])}`;
  }
  function costExact(c) {
    if (!c || !known(c[0])) return "not measured here";
    let text = `own ${exact(c[0])}`;
    if (known(c[1]) && known(c[2])) text += ` (95 % ${exact(c[1])} to ${exact(c[2])})`;
    if (!known(c[3])) return `${text}, with layers shared with other modules unknown`;
    return c[3] === 0 ? text : `${text}, with layers shared with other modules ${exact(c[0] + c[3])}`;
  }
  const escaped = (ch) => {
    const code = ch.codePointAt(0);
    const hex = code.toString(16);
    const named = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
    return named || (code < 256 ? `\\x${hex.padStart(2, "0")}` : code < 65536 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`);
  };
  const visible = (s) => String(s).replace(/(?! )[\p{C}\p{Z}]/gu, escaped);
  function short(s, limit = 160) {
    const chars = Array.from(visible(s));
    if (chars.length <= limit) return chars.join("");
    const tail = Math.floor(limit / 3);
    return `${chars.slice(0, limit - tail - 1).join("")}…${chars.slice(-tail).join("")}`;
  }

  // ---- Elements: text is only ever set as text ----
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

  // ---- Precisions: one panel of columns at a time, everywhere on the page ----
  const panels = data.panels;
  let panel = 0;
  const follow = []; // called after another panel was chosen
  function choose(k) {
    panel = k;
    for (const div of document.querySelectorAll(".panel")) div.hidden = div.dataset.panel !== panels[k].key;
    for (const input of document.querySelectorAll("#precision input")) input.checked = input.value === panels[k].key;
    for (const f of follow) f();
  }
  // "#fp16" chooses, "#kinds-fp16" chooses and goes there.
  function fromHash() {
    const hash = window.location.hash.slice(1);
    const k = panels.findIndex((p) => hash === p.key || ["ledger", "where", "modules", "kinds"].some((s) => hash === `${s}-${p.key}`));
    if (k < 0) return;
    choose(k);
    const to = $(hash);
    if (to) to.closest("section").scrollIntoView();
  }
  if (panels.length > 1) {
    for (const input of document.querySelectorAll("#precision input")) {
      input.addEventListener("change", () => {
        choose(panels.findIndex((p) => p.key === input.value));
        window.history.replaceState(null, "", `#${input.value}`);
      });
    }
    window.addEventListener("hashchange", fromHash);
  }

  // ---- Small tables: sort the rows that are there ----
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((th, i) => {
      const numeric = th.classList.contains("right");
      const value = (row) => {
        const v = row.cells[i].dataset.v;
        return numeric && v !== "" && v !== undefined ? Number(v) : v;
      };
      sorter(th, numeric ? "descending" : "ascending", (direction) => {
        const rows = direction === null ? original : [...original].sort((a, b) => compare(value(a), value(b), direction));
        body.append(...rows);
      });
    });
  }

  // ---- The tree ----
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
        const value = sort.side === "name" ? (c) => modules[c.i].name : (c) => whole(modules[c.i].costs[sort.side]);
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

    function marked(text, limitTo) {
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
    function label(item) {
      if (item.type === "module") {
        const m = modules[item.i];
        const parts = [el("bdi", { class: "name", title: visible(m.path || "the model") }, ...(m.name === "" ? ["(model)"] : marked(m.name, 80)))];
        if (m.cls) parts.push(" ", el("bdi", { class: "muted" }, ...marked(m.cls, 40)));
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
    function costCell(c, w) {
      const cell = el("td", { class: "cost", role: "gridcell", title: costExact(c) + (w ? `. ${w.text}` : "") }, el("span", { class: c && known(c[0]) ? "num" : "num unknown" }, costText(c)));
      if (c && known(c[0])) {
        const all = whole(c);
        const width = known(c[4]) && all > 0 ? Math.min(100, 100 * c[4]) : 0;
        const own = all > 0 ? (width * c[0]) / all : 0;
        cell.append(el("span", { class: "share" }, known(c[4]) ? percent(c[4]) : ""),
          el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: `width:${own.toFixed(2)}%` }), el("i", { class: "shared", style: `width:${(width - own).toFixed(2)}%` })));
      }
      if (w) cell.append(boundOf(w));
      return cell;
    }
    function row(item) {
      const tr = el("tr", {
        role: "row", class: item.type, "data-key": item.key,
        "aria-level": item.level, "aria-posinset": item.position, "aria-setsize": item.size,
        "aria-expanded": item.more ? String(isOpen(item)) : null,
      });
      const twist = item.more ? el("span", { class: "twist", "aria-hidden": "true" }, "▶") : null;
      // A node has no time of its own: its name may use the whole line.
      const span = item.type === "node" || item.type === "kernel" || item.type === "group" ? shown.size + 1 : null;
      tr.append(el("th", { scope: "row", role: "rowheader", colspan: span, style: `--level:${item.level - 1}` }, el("span", { class: "cell" }, twist, ...label(item))));
      for (const side of span ? [] : ordered()) {
        if (item.type === "module") tr.append(costCell(modules[item.i].costs[side] || null, modules[item.i].counters[side]));
        else if (item.type === "layer" && layers[item.i].side === side) {
          const r = layers[item.i];
          tr.append(costCell([r.time[0], r.time[1], r.time[2], 0, r.share], r.counters));
        } else tr.append(el("td", { class: "cost", role: "gridcell" }));
      }
      return tr;
    }
    // A row that looks as it did is used again.
    let drawn = new Map();
    function rowFor(item, next) {
      const looks = [item.position, item.size, item.more && isOpen(item), needle, ...ordered()].join();
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
        body.append(el("tr", { role: "row", class: "more" }, el("td", { role: "gridcell", colspan: shown.size + 1 }, more)));
      }
      if (!items.length) body.append(el("tr", { role: "row" }, el("td", { role: "gridcell", colspan: shown.size + 1, class: "muted" }, "No module matches.")));
      tree.tBodies[0].replaceChildren(body);
      if (focus) focusRow(current);
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
      for (const i of ordered()) add(el("th", { scope: "col", role: "columnheader", class: "right" }, nameOf(sides[i].label, 60)), i, "descending");
      tree.tHead.replaceChildren(tr);
      tree.style.setProperty("--sides", shown.size);
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
    follow.push(() => {
      showPanel();
      boxes.forEach((box, i) => { box.checked = shown.has(i); });
      if (sort !== null && sort.side !== "name" && !shown.has(sort.side)) sort = null;
      head();
      draw(false);
    });
    head();
    draw(false);
  }

  // ---- Layers ----
  const table = $("layer-table");
  if (table) {
    const counted = layers.some((r) => r.counters);
    const columns = [
      ["name", (r) => r.name], ["side", (r) => sideLabel(r)], ["kind", (r) => r.kind], ["rule", (r) => r.rule],
      ["calls", (r) => r.calls], ["kernels", (r) => r.kernels], ["time", (r) => r.time[0]], ["share", (r) => r.share],
      ...(counted ? [["bound", (r) => r.counters && r.counters.bound], ["peak", (r) => r.counters && r.counters.peak && r.counters.peak[1]], ["bytes", (r) => r.counters && r.counters.bytes]] : []),
      ["in", (r) => r.in], ["out", (r) => r.out], ["compute", (r) => r.compute], ["tactic", (r) => r.tactic],
    ];
    const haystack = layers.map((r) => [r.name, r.kind, r.rule, r.tactic || "", r.compute || "", ...r.modules].map(visible).join("\n").toLowerCase());
    const opened = new Set();
    let order = { column: 6, direction: -1 };
    let limit = 40;
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
    const ratio = (v) => {
      if (!known(v)) return "–";
      let decimals = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
      const edge = (text) => v !== Number(text) && (Number(text) === 0 || Number(text) === 1);
      while (decimals < 4 && edge(v.toFixed(decimals))) decimals += 1;
      const text = v.toFixed(decimals);
      return edge(text) ? `${v > Number(text) ? ">" : "<"}${Number(text).toFixed(2)}×` : `${text}×`;
    };
    function floorOf(f) {
      if (!f) return "–";
      const work = `${known(f.flop) ? f.flop.toLocaleString("en-US") : "–"} FLOP, ${known(f.bytes) ? f.bytes.toLocaleString("en-US") : "–"} bytes`;
      return known(f.times) && known(f.ns) ? `${f.times.toFixed(2)}× the ${time(f.ns)} that its ${f.limit} need at least (${work})` : work;
    }
    const boundCells = (w) => [el("td", { title: w ? w.text : null }, maybe(w && w.bound, 20)), el("td", { class: "right num" }, percent(w && w.peak && w.peak[1])), el("td", { class: "right num" }, ratio(w && w.bytes))];
    function line(i) {
      const r = layers[i];
      const button = el("button", { type: "button", class: "open", "aria-expanded": String(opened.has(i)), "data-layer": i }, nameOf(r.name, 120));
      button.addEventListener("click", () => {
        const tr = button.closest("tr");
        if (opened.delete(i)) tr.nextSibling.remove(); else { opened.add(i); tr.after(detail(r)); }
        button.setAttribute("aria-expanded", String(opened.has(i)));
      });
      const [median, low, high, n] = r.time;
      const sub = known(low) && known(high) ? `${timeRange(low, high)}, n ${n}` : n || known(median) ? `no interval, n ${n}` : "";
      const count = (v) => el("td", { class: "right num" }, known(v) ? v.toLocaleString("en-US") : "–");
      const text = (v, limitTo) => el("td", {}, maybe(v, limitTo));
      return el("tr", {},
        el("th", { scope: "row" }, button),
        el("td", {}, el("bdi", {}, short(sideLabel(r), 60))), text(r.kind, 40),
        el("td", { title: rules.get(r.rule) || "" }, maybe(r.rule, 40)),
        count(r.calls), count(r.kernels),
        el("td", { class: "right", title: exact(median) }, el("span", { class: "num" }, time(median)), el("small", {}, sub)),
        el("td", { class: "right num" }, percent(r.share)),
        ...(counted ? boundCells(r.counters) : []),
        text(r.in, 20), text(r.out, 20), text(r.compute, 20), text(r.tactic, 60));
    }
    function draw() {
      let found = layers.map((_, i) => i).filter((i) => (side === "" || sideLabel(layers[i]) === side) && (!needle || haystack[i].includes(needle)));
      if (order !== null) {
        const value = columns[order.column][1];
        found = found.sort((a, b) => compare(value(layers[a]), value(layers[b]), order.direction));
      }
      const body = document.createDocumentFragment();
      for (const i of found.slice(0, limit)) {
        body.append(line(i));
        if (opened.has(i)) body.append(detail(layers[i]));
      }
      if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, "No layer matches.")));
      table.tBodies[0].replaceChildren(body);
      $("layer-more").hidden = found.length <= limit;
      $("layer-more").textContent = `Show ${Math.min(100, found.length - limit)} more of ${found.length}`;
      $("layer-count").textContent = needle || side !== "" ? `${found.length} of ${layers.length} layers` : "";
    }
    [...table.tHead.rows[0].cells].forEach((th, i) => {
      sorter(th, th.classList.contains("right") ? "descending" : "ascending", (direction) => {
        order = direction === null ? null : { column: i, direction };
        draw();
      });
      if (i === 6) th.setAttribute("aria-sort", "descending");
    });
    for (const labelText of new Set(layers.map(sideLabel))) $("layer-side").append(el("option", { value: labelText }, short(labelText, 60)));
    $("layer-side").addEventListener("change", (event) => { side = event.target.value; limit = 40; draw(); });
    $("layer-filter").addEventListener("input", (event) => { needle = event.target.value.trim().toLowerCase(); limit = 40; draw(); });
    $("layer-more").addEventListener("click", () => { limit += 100; draw(); });
    draw();
  }

  if (panels.length > 1) {
    choose(data.first);
    fromHash();
  }

  // Everything that is folded away is printed.
  const folded = () => [...document.querySelectorAll("details:not([open])")];
  let toFold = [];
  window.addEventListener("beforeprint", () => { toFold = folded(); for (const d of toFold) d.open = true; });
  window.addEventListener("afterprint", () => { for (const d of toFold) d.open = false; });
})();
