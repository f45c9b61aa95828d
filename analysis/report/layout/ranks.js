const NS = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function add(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

const share = (part, whole) => `${(100 * part / whole).toFixed(1)} %`;
const tell = (text) => { byId("info").textContent = text; };
const many = data.ranks.length >= data.mapFrom;
let opened = null;

function clear(id, height) {
  const svg = byId(id);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${svg.dataset.width} ${height}`);
  return svg;
}

function rowHeight(rank) {
  return !many || rank === opened || rank === data.worst ? 32 : Math.max(4, Math.min(12, 600 / data.ranks.length));
}

function rows(svg, ranks, draw) {
  let y = 6;
  for (const one of ranks) {
    const height = rowHeight(one.rank), bar = height > 20 ? 22 : Math.max(height - 1, 3);
    const group = add(svg, "g", {tabindex: 0, role: "img"});
    if (height > 14 || one.rank % 8 === 0)
      add(group, "text", {x: 52, y: y + bar / 2 + 4, "text-anchor": "end",
        "font-weight": one.rank === data.worst ? 700 : 400}, height > 14 ? `rank ${one.rank}` : one.rank);
    draw(group, one, y, bar);
    if (many) group.addEventListener("click", () => {
      opened = opened === one.rank ? null : one.rank; drawAll();
    });
    y += height;
  }
  return y;
}

function drawMeans() {
  const ranks = data.ranks, width = 430;
  const longest = Math.max(...ranks.map((r) => r.total), 1);
  const height = ranks.reduce((sum, r) => sum + rowHeight(r.rank), 12);
  const svg = clear("means", height);
  rows(svg, ranks, (group, one, y, bar) => {
    let x = 60;
    one.parts.forEach((value, k) => {
      if (!value) return;
      const w = value / longest * width, part = data.parts[k];
      const rect = add(group, "rect", {x, y, width: Math.max(w - (bar > 12 ? .6 : 0), .2), height: bar, fill: `var(--${part.name})`});
      const longer = part.name === "compute" && one.beside && one.beside.ratio ? one.beside.longer_ns : null;
      const text = `rank ${one.rank}: ${part.label} ${time(value)}, ${share(value, one.total)} of its mean step of ${time(one.total)}`
        + (longer === null ? "" : `; ${time(longer)} of it as it ran beside communication (${one.beside.ratio.toFixed(2)}×)`);
      rect.addEventListener("mouseenter", () => tell(text));
      add(rect, "title", {}, text);
      x += w;
    });
    group.setAttribute("aria-label", `rank ${one.rank}: ` + one.parts
      .map((v, k) => v ? `${data.parts[k].label} ${share(v, one.total)}` : "").filter(Boolean).join(", "));
    group.addEventListener("focus", () => tell(group.getAttribute("aria-label")));
  });
}

function drawStep() {
  const step = data.steps[Number(byId("step").value)];
  if (!step) return;
  const width = 640, X = (v) => 60 + v / step.length * width;
  const height = step.ranks.reduce((sum, r) => sum + rowHeight(r.rank), 28);
  const svg = clear("timeline", height);
  byId("stepname").textContent = step.iteration === null ? "The capture" : `Step ${step.iteration}`;
  const bottom = rows(svg, step.ranks, (group, one, y, bar) => {
    const total = one.runs.filter((_, k) => k % 2).reduce((a, b) => a + b, 0);
    let at = 0;
    for (let k = 0; k < one.runs.length; k += 2) {
      const part = data.parts[one.runs[k]], count = one.runs[k + 1];
      if (part) {
        const from = at / total * step.length, long = count / total * step.length;
        const rect = add(group, "rect", {x: X(from), y, width: Math.max(X(from + long) - X(from), .3), height: bar, fill: `var(--${part.name})`});
        rect.addEventListener("mouseenter", () => tell(`rank ${one.rank}: ${part.label}, about ${time(long)} from ${time(from)} on`));
      }
      at += count;
    }
    group.setAttribute("aria-label", `rank ${one.rank}`);
  });
  if (!many) for (const end of step.ends)
    add(svg, "line", {x1: X(end), x2: X(end), y1: 2, y2: bottom - 6, stroke: "var(--dim)", "stroke-dasharray": "2 3"});
  add(svg, "text", {x: 60, y: height - 4, class: "d"}, "0");
  add(svg, "text", {x: 60 + width, y: height - 4, class: "d", "text-anchor": "end"}, time(step.length));
}

function drawAll() { drawMeans(); drawStep(); }

const choice = byId("step");
data.steps.forEach((step, k) => {
  const option = document.createElement("option");
  option.value = k;
  option.textContent = step.iteration === null ? "the capture" : `step ${step.iteration}`;
  choice.append(option);
});
choice.value = Math.floor(data.steps.length / 2);
choice.addEventListener("change", drawStep);
drawAll();
