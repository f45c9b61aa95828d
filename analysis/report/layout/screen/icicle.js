// The icicles: where the time of both sides goes, on one scale, opened by click and by keys.
const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
if ($("icicles") && data.icicles.sides.some((s) => s)) {
  const ROWS = 6;
  const GAP = 1;
  const paths = new Map();
  const inner = new Map(); // modules that hold others, with these
  modules.forEach((m, i) => {
    if (m.kind !== "module") return;
    paths.set(m.path, i);
    if (m.parent === null) return;
    if (!inner.has(m.parent)) inner.set(m.parent, []);
    inner.get(m.parent).push(i);
  });
  const around = (i) => { const found = []; for (let k = i; k !== null; k = modules[k].parent) found.unshift(k); return found; };
  const within = (i, m) => { for (let k = i; k !== null; k = modules[k].parent) if (k === m) return true; return false; };
  const titleOf = (i) => {
    const m = modules[i];
    if (m.name === "") return "model";
    return /^\d+$/.test(m.name) && m.parent !== null && modules[m.parent].name ? `${modules[m.parent].name}.${m.name}` : m.name;
  };

  // One side's tree. What serves several modules hangs, once, below the innermost module around all.
  function grow(side) {
    const found = data.icicles.sides[side];
    const ofModule = new Map();
    const roots = [];
    const fused = [];
    const box = (fields) => ({ ns: 0, kids: [], up: null, module: null, members: [], part: null, side, ...fields });
    function at(i) {
      if (ofModule.has(i)) return ofModule.get(i);
      const made = box({ module: i, members: [i], order: i, type: "module" });
      ofModule.set(i, made);
      const parent = modules[i].parent;
      if (parent === null) roots.push(made);
      else { made.up = at(parent); made.up.kids.push(made); }
      return made;
    }
    for (const [ns, part, members] of found.leaves) {
      let leaf;
      if (typeof members === "string") {
        leaf = box({ type: "row", label: members, part, ns, order: 1e9 });
        roots.push(leaf);
        continue;
      }
      let chain = around(members[0]);
      for (const m of members) { const other = around(m); chain = chain.filter((x, k) => other[k] === x); }
      const home = at(chain[chain.length - 1]);
      if (members.length === 1 && !inner.has(members[0])) { leaf = home; leaf.part = part; } else {
        const child = around(members[0])[chain.length];
        leaf = box({ type: members.length > 1 ? "fused" : "own", members, part, up: home, order: child === undefined ? 1e9 : child + 0.5 });
        home.kids.push(leaf);
        if (leaf.type === "fused") fused.push(leaf);
      }
      leaf.ns += ns;
      for (let up = leaf.up; up; up = up.up) up.ns += ns;
      leaf.layersOf = members.map((m) => modules[m].path).sort().join("\n");
    }
    const sort = (list) => { list.sort((a, b) => a.order - b.order); for (const b of list) sort(b.kids); };
    sort(roots);
    // A module's part is that of all it holds.
    const settle = (b) => {
      if (!b.kids.length) return b.part;
      const parts = new Set(b.kids.map(settle));
      b.part = parts.size === 1 ? [...parts][0] : null;
      return b.part;
    };
    roots.forEach(settle);
    return { side, roots, ofModule, fused, total: roots.reduce((sum, b) => sum + b.ns, 0) };
  }
  const trees = new Map();
  const treeOf = (side) => { if (!trees.has(side)) trees.set(side, grow(side)); return trees.get(side); };
  const layersBySide = new Map();
  function layersOf(b) {
    if (!layersBySide.has(b.side)) {
      const by = new Map();
      layers.forEach((r, i) => {
        if (r.side !== b.side || !known(r.time[0])) return;
        const key = [...r.modules].sort().join("\n");
        if (!by.has(key)) by.set(key, []);
        by.get(key).push(i);
      });
      layersBySide.set(b.side, by);
    }
    return b.layersOf === undefined ? [] : layersBySide.get(b.side).get(b.layersOf) || [];
  }
  // Parts of a box in the ratio of what was measured of them.
  function divided(b, items, weight, make) {
    const sum = items.reduce((s, x) => s + weight(x), 0);
    return sum > 0 ? items.map((x) => ({ kids: [], up: b, side: b.side, module: null, members: b.members, part: b.part, ns: (b.ns * weight(x)) / sum, ...make(x) })) : [];
  }
  function kidsOf(b) {
    if (b.type === "layer") return divided(b, layers[b.layer].counters ? layers[b.layer].counters.kernels : [], (k) => k[4] || 0, (k) => ({ type: "kernel", label: k[0] }));
    if (b.kids.length) return b.kids.flatMap((k) => spread(b, k));
    return b.type === "kernel" ? [] : divided(b, layersOf(b), (i) => layers[i].time[0], (i) => ({ type: "layer", layer: i, label: layers[i].name }));
  }
  // A list of modules stands for what it holds, and so does the backbone of a model.
  function spread(b, k) {
    const inside = k.kids.filter((x) => x.type === "module");
    const list = inside.length > 0 && inside.every((x) => /^\d+$/.test(modules[x.module].name));
    const backbone = b.module !== null && modules[b.module].parent === null && inside.length > 0 && k.ns > 0.6 * b.ns;
    return k.type === "module" && (list || backbone) ? k.kids.flatMap((x) => spread(k, x)) : [k];
  }

  const partsShown = () => [...new Set(shownSides().flatMap((s) => data.icicles.sides[s].leaves.map((l) => l[1])))].map((k) => data.icicles.parts[k]);
  // The modules around one that have a box of their own, the model first.
  function shownAround(i) {
    const tree = treeOf(shownSides().find((s) => treeOf(s).ofModule.has(i)));
    return around(i).filter((k) => { const b = tree.ofModule.get(k); return !b.up || spread(b.up, b)[0] === b; });
  }
  // Colours. Each says the class of a box, and what its classes mean.
  const costs = (b, side) => (b.module === null ? null : modules[b.module].costs[side]);
  const middle = (c) => (c && known(c[0]) ? c[0] + (c[3] || 0) / 2 : null);
  const graded = (v) => (known(v) ? `g${Math.max(0, Math.min(3, Math.floor(v * 4)))}` : "none");
  const lookOf = (b) => (b.part === null ? "box" : data.icicles.parts[b.part][1]);
  function differs(b) {
    const two = pair();
    const [x, y] = two ? two.map((s) => middle(costs(b, s))) : [];
    if (!x || !y) return "none";
    const times = x / y;
    return times >= 2 ? "d0" : times >= 1.1 ? "d1" : times > 1 / 1.1 ? "d2" : times > 0.5 ? "d3" : "d4";
  }
  const counters = (b) => (b.type === "layer" ? layers[b.layer].counters : b.module !== null ? modules[b.module].counters[b.side] : null);
  const offOf = (b) => {
    const side = data.screens[screen][1];
    return b.module !== null && modules[b.module].off ? modules[b.module].off[side] : null;
  };
  const largest = (f) => Math.max(...modules.map((_, i) => f(i) || 0), 0);
  const ends = [["g0", "less"], ["g1", ""], ["g2", ""], ["g3", "more"]];
  const modes = new Map([
    ["kind", { title: "kind", look: lookOf, legend: () => [...new Map(partsShown().filter(([, look]) => /^k\d/.test(look)).map(([n, look]) => [look, n])).entries()].sort() }],
    ["difference", { title: "difference", shown: () => pair() !== null, look: differs, legend: () => [["d0", "half the time or less"], ["d1", "faster"], ["d2", "alike"], ["d3", "slower"], ["d4", "twice the time or more"]] }],
    ["share", { title: "share", look: (b) => graded(Math.min(0.99, (4 * b.ns) / treeOf(b.side).total)), legend: () => [["g0", "under 6 %"], ["g1", "12 %"], ["g2", "19 %"], ["g3", "more"]] }],
    ["bound", { title: "bound", shown: () => modules.some((m) => m.counters.some((c) => c)), look: (b) => { const w = counters(b); return w ? `b-${w.bound || "unknown"}` : "none"; }, legend: () => ["tensor", "fp32", "memory", "latency", "launch"].map((x) => [`b-${x}`, x]) }],
    ["error", {
      title: "error", shown: () => modules.some((m) => m.off && m.off[data.screens[screen][1]]),
      look: (b) => { const off = offOf(b); const most = largest((i) => (modules[i].off && modules[i].off[data.screens[screen][1]] ? modules[i].off[data.screens[screen][1]][0] : 0)); return !off ? "none" : off[1] ? "first-wrong" : most > 0 && known(off[0]) ? graded(Math.min(0.99, off[0] / most)) : "none"; },
      legend: () => [...ends, ["first-wrong", "first wrong"]],
    }],
    ...(data.columns || []).map((c, k) => [`column${k}`, {
      title: c.title, shown: () => (panels[panel].columns || []).includes(k),
      look: (b) => { const v = b.module !== null && (modules[b.module].more || [])[k]; const most = largest((i) => ((modules[i].more || [])[k] || [0])[0]); return v && most > 0 ? graded(Math.min(0.99, v[0] / most)) : "none"; },
      legend: () => ends,
    }]),
  ]);

  let opened = null; // a module, or null for the model
  let mode = "kind";
  let drawn = []; // boxes with their elements, by side
  let keep = null; // what has the focus when it is drawn again
  const shownSides = () => {
    const [over, under, wrong] = data.screens[screen];
    return (wrong ? [over] : [over, under]).filter((s) => known(s) && data.icicles.sides[s]);
  };
  const rootsOf = (tree) => {
    if (opened === null) return tree.roots;
    const node = tree.ofModule.get(opened);
    const touching = tree.fused.filter((f) => f.members.some((m) => within(m, opened)) && !within(f.up.module, opened));
    return [...(node ? [node] : []), ...touching];
  };
  const nameOfBox = (b) => (b.type === "module" ? titleOf(b.module) : b.type === "own" ? `${titleOf(b.members[0])} itself` : b.type === "fused" ? b.members.map(titleOf).join(" + ") : b.label);
  const keyOf = (b) => `${b.type}:${b.type === "layer" ? b.layer : b.module !== null ? b.module : b.members.join()}:${b.label || ""}`;

  function draw() {
    const room = $("icicle-sides");
    const width = Math.max(280, Math.floor(room.clientWidth));
    const all = shownSides();
    const scale = width / Math.max(1, ...all.map((s) => rootsOf(treeOf(s)).reduce((sum, b) => sum + b.ns, 0)));
    const tall = window.innerWidth <= 800 ? 26 : window.innerHeight < 780 ? 26 : all.length > 1 ? 33 : 56;
    drawn = [];
    room.replaceChildren(hatch(), ...all.map((s) => drawSide(treeOf(s), width, scale, tall)));
    if (!all.length) room.append(el("p", { class: "empty" }, "No module's time is known."));
    path();
    legend();
    const focus = keep && drawn.flat().find((b) => b.side === keep.side && keyOf(b) === keep.key);
    if (focus) { tabbed(focus); focus.g.focus({ preventScroll: true }); }
    say(focus || null);
  }
  // Stripes of the background, over the colour of what is fused.
  const hatch = () => svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, svg("defs", {}, svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 3, height: 5, class: "stripe" }))));
  function drawSide(tree, width, scale, tall) {
    const boxes = [];
    function place(b, x, row, parent) {
      const w = b.ns * scale;
      if (w < 0.4 || row >= ROWS) return;
      const one = { ...b, x, w, row, above: parent, below: [] };
      boxes.push(one);
      if (parent) parent.below.push(one);
      if ((["layer", "kernel"].includes(b.type) && w < 2) || b.type === "fused") return;
      let left = x;
      const kids = kidsOf(b);
      if (kids.length && kids[0].type === "layer" && w < 20) return;
      for (const k of kids) { place(k, left, row + 1, one); left += k.ns * scale; }
    }
    let left = 0;
    const roots = rootsOf(tree);
    for (const b of roots) { place(b, left, 0, null); left += b.ns * scale; }
    const rows = Math.max(...boxes.map((b) => b.row), 3) + 1;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${rows * tall}`, role: "group", "aria-label": `${sides[tree.side].label}, by module` });
    for (const b of boxes) {
      const last = b.type === "fused" ? rows - 1 : b.row;
      const look = `${modes.get(mode).look(b)}${b.type === "fused" ? " fused" : ""}`;
      b.g = svg("g", { class: `cell-box ${look} ${b.type}`, tabindex: "-1", role: "button", "aria-label": `${short(nameOfBox(b), 80)}, ${time(b.ns)}` });
      const h = (last - b.row + 1) * tall - GAP;
      b.g.append(svg("rect", { x: b.x.toFixed(2), y: b.row * tall, width: Math.max(b.w - (b.w > 4 ? GAP : 0.2), 0.4).toFixed(2), height: h }));
      if (b.type === "fused") {
        const over = b.g.firstChild.cloneNode();
        over.setAttribute("class", "stripes");
        b.g.append(over);
      }
      const letters = Math.floor((b.w - 8) / 6.7);
      if (letters >= 2) {
        const text = short(nameOfBox(b), 80);
        b.g.append(svg("text", { x: (b.x + 5).toFixed(2), y: b.row * tall + tall / 2 + 4 }, text.length <= letters ? text : letters > 3 ? `${Array.from(text).slice(0, letters - 1).join("")}…` : ""));
      }
      b.g.addEventListener("pointerenter", () => say(b));
      b.g.addEventListener("focus", () => { tabbed(b); say(b); });
      b.g.addEventListener("click", () => { if (b.g.contains(document.activeElement)) keep = { side: b.side, key: keyOf(b) }; open(b); });
      b.g.addEventListener("keydown", (event) => keys(event, b, boxes));
      picture.append(b.g);
    }
    if (boxes.length) boxes[0].g.setAttribute("tabindex", "0");
    drawn.push(boxes);
    picture.addEventListener("pointerleave", () => say(drawn.flat().find((b) => b.g === document.activeElement) || null));
    const found = data.icicles.sides[tree.side];
    const whole = roots.reduce((sum, b) => sum + b.ns, 0);
    const of = opened === null && found.of !== "operations" ? `${time(whole)} of ${time(found.total)}` : time(whole);
    return el("figure", { class: sides[tree.side].side === "engine" ? "engine" : "eager" }, el("figcaption", {}, el("b", {}, el("bdi", {}, short(sides[tree.side].label, 60))), ` ${of}`), picture);
  }
  function tabbed(b) {
    for (const one of drawn.find((list) => list.includes(b)) || []) one.g.setAttribute("tabindex", one === b ? "0" : "-1");
  }
  // What shares a module with a box, on any side.
  function alike(b, one) {
    if (b.type === "row") return one.type === "row" && one.label === b.label;
    if (one.type === "row") return false;
    if (b.type === "layer" || b.type === "kernel") return one.g === b.g || (one.type === "module" && b.members.includes(one.module));
    if (one.type === "module" && b.type === "module") return one.module === b.module;
    if (b.type === "module") return one.members.some((m) => within(m, b.module)) && one.type === "fused";
    return one.type === "module" ? b.members.includes(one.module) : one.type === b.type && one.members.join() === b.members.join();
  }
  function say(b) {
    for (const one of drawn.flat()) one.g.classList.toggle("lit", b !== null && alike(b, one));
    $("icicle-said").replaceChildren(...(b === null ? ["Point at a module, or move with Tab and arrows."] : figures(b)));
  }
  function figures(b) {
    const where = b.type === "module" ? modules[b.module].path || "model" : nameOfBox(b);
    const parts = [el("b", {}, el("bdi", {}, short(where, 70)))];
    if (b.type === "module") {
      const all = shownSides();
      parts.push(` ${all.map((s) => { const c = costs(b, s); return `${short(sides[s].label, 40)} ${costText(c)}${c && known(c[4]) ? ` (${percent(c[4])})` : ""}`; }).join(" · ")}`);
      const change = pair() && changeOf(costs(b, pair()[0]), costs(b, pair()[1]));
      if (change && change.ratio !== "–") parts.push(` · ${change.ratio} · ${change.difference}`);
      const off = data.screens[screen][2] && (modules[b.module].errors || [])[data.screens[screen][1]];
      if (off) parts.push(` · ${off}`);
    } else {
      const kind = { layer: "layer", kernel: "kernel", fused: "fused", own: "own operations", row: "no module" }[b.type];
      const inside = b.type === "fused" ? layersOf(b).map((i) => short(layers[i].name, 60)).slice(0, 3).join(", ") : "";
      parts.push(` ${kind}${inside ? ` (${inside})` : ""}, ${short(sides[b.side].label, 40)} ${time(b.type === "layer" ? layers[b.layer].time[0] : b.ns)}`);
    }
    const w = counters(b);
    if (w && w.bound) parts.push(` · ${w.bound}-bound`);
    return parts;
  }
  function go(module) { opened = module === null || modules[module].parent === null ? null : module; draw(); }
  function open(b) {
    const module = b.type === "module" ? b.module : b.members.length === 1 ? b.members[0] : null;
    if (module === null) return;
    if (module === opened) window.location.hash = `#module:${encodeURIComponent(modules[module].path)}`;
    else go(module);
  }
  function keys(event, b, boxes) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const row = boxes.filter((one) => one.row === b.row);
    const at = row.indexOf(b);
    const focus = (one) => { if (one) one.g.focus(); };
    const actions = new Map([
      ["ArrowRight", () => focus(row[at + 1])],
      ["ArrowLeft", () => focus(row[at - 1])],
      ["ArrowDown", () => focus(b.below[0])],
      ["ArrowUp", () => focus(b.above)],
      ["Enter", () => { keep = { side: b.side, key: keyOf(b) }; open(b); }],
      [" ", () => { keep = { side: b.side, key: keyOf(b) }; open(b); }],
      ["Escape", () => { if (opened !== null) { keep = { side: b.side, key: `module:${opened}:` }; const chain = shownAround(opened).filter((i) => i !== opened); go(chain.length ? chain[chain.length - 1] : null); } }],
    ]);
    const action = actions.get(event.key);
    if (action) { event.preventDefault(); event.stopPropagation(); action(); }
  }
  function path() {
    const chain = opened === null ? [] : [...shownAround(opened).filter((i) => i !== opened), opened];
    $("icicle-path").replaceChildren(...chain.flatMap((i, k) => {
      const button = el("button", { type: "button", "aria-current": i === opened ? "true" : null, on: { click: () => go(i) } }, short(titleOf(i), 30));
      return k ? [" › ", button] : [button];
    }));
  }
  function legend() {
    const items = modes.get(mode).legend().map(([look, text]) => el("li", {}, el("i", { class: look }), el("bdi", {}, short(text, 40))));
    $("icicle-sides").append(el("ul", { class: "keys" }, ...items, el("li", {}, el("i", { class: "k fused" }), "fused")));
  }
  function offer() {
    const select = $("icicle-colour");
    const shown = [...modes].filter(([, m]) => !m.shown || m.shown());
    mode = data.screens[screen][2] && shown.some(([k]) => k === "error") ? "error" : shown.some(([k]) => k === mode) ? mode : "kind";
    select.replaceChildren(...shown.map(([key, m]) => el("option", { value: key, selected: key === mode }, m.title)));
  }
  $("icicle-colour").addEventListener("change", (event) => { mode = event.target.value; keep = null; draw(); });
  rechosen.push(() => { opened = null; keep = null; offer(); draw(); });
  let before = 0;
  window.addEventListener("resize", () => { if ($("icicle-sides").clientWidth !== before) { before = $("icicle-sides").clientWidth; draw(); } });
  offer();
  draw();
} else if ($("icicles")) $("icicles").hidden = true;
