const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
document.body.classList.add("script");
const SHOWN = 14;
const NS = "http://www.w3.org/2000/svg";
const chart = $("chart"), moment = $("moment");
const n = data.time.length;
const totals = data.time.map((_, i) => data.values.reduce((sum, row) => sum + row[i], 0));
const top = Math.max(1, ...totals);
const last = Math.max(1, data.time[n - 1]);
let along = "time", chosen = data.peak, left = 0, width = 1;

function size(bytes) { // as formatting.size
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = Math.abs(bytes), unit = 0;
  while (value >= 999.5 && unit < 5) { value /= 1000; unit += 1; }
  const digits = !unit || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}
function el(tag, attributes, ...inner) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
}
function svg(tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  chart.append(made);
  return made;
}
const share = (i) => (along === "time" ? data.time[i] / last : n > 1 ? i / (n - 1) : 0);
const x = (i) => left + share(i) * (width - left - 8);
// The first moment at or after a time.
function momentOf(ns) {
  let low = 0, high = n - 1;
  while (low < high) { const middle = (low + high) >> 1; if (data.time[middle] < ns) low = middle + 1; else high = middle; }
  return low;
}
function draw() {
  chart.replaceChildren();
  width = chart.clientWidth || 600;
  const height = chart.clientHeight || 300, bottom = height - 22, head = 20;
  const y = (bytes) => bottom - (bytes / (top * 1.04)) * (bottom - head);
  left = 58;
  for (const part of [0, 0.5, 1]) svg("text", { x: left - 6, y: y(top * part) + 4, "text-anchor": "end" }, size(top * part));
  const below = new Array(n).fill(0);
  data.values.forEach((row, k) => {
    let up = "", down = "";
    for (let i = 0; i < n; i += 1) {
      const a = x(i).toFixed(1), b = x(Math.min(n - 1, i + 1)).toFixed(1); // a state lasts until the next
      const low = y(below[i]).toFixed(1), high = y(below[i] + row[i]).toFixed(1);
      up += `${i ? "L" : "M"}${a} ${high}L${b} ${high}`;
      down = `L${b} ${low}L${a} ${low}${down}`;
      below[i] += row[i];
    }
    svg("path", { d: `${up}${down}Z`, class: `k${data.codes[k]}` });
  });
  const spans = [];
  for (const [phase, begin, end] of data.phases) {
    const before = spans[spans.length - 1];
    if (before && before.phase === phase) before.end = end; // recomputation cuts backward up
    else if (phase !== "recompute") spans.push({ phase, begin, end });
  }
  for (const span of spans) {
    span.from = x(momentOf(span.begin));
    span.to = x(momentOf(span.end));
    svg("line", { x1: span.from, x2: span.from, y1: head - 6, y2: bottom, class: "edge" });
  }
  const taken = []; // the longest phases are named first
  for (const span of spans.sort((a, b) => b.to - b.from - (a.to - a.from))) {
    const text = svg("text", { x: span.from + 3, y: bottom + 15 }, span.phase);
    const from = Math.max(left, Math.min(span.from + 3, width - 8 - text.getComputedTextLength()));
    const to = from + text.getComputedTextLength() + 8;
    text.setAttribute("x", from);
    if (taken.some(([a, b]) => from < b && a < to)) text.remove();
    else taken.push([from, to]);
  }
  const line = y(totals[data.peak]);
  svg("line", { x1: left, x2: width - 8, y1: line, y2: line, class: "peak" });
  const label = svg("text", { x: x(data.peak) + 5, y: line - 5, class: "at" }, `peak ${size(totals[data.peak])}`);
  if (x(data.peak) + 5 + label.getComputedTextLength() > width) { label.setAttribute("x", x(data.peak) - 5); label.setAttribute("text-anchor", "end"); }
  svg("line", { x1: 0, x2: 0, y1: head - 6, y2: bottom, class: "now", id: "now" });
  show(chosen);
}
function phaseOf(i) {
  const found = data.phases.filter(([, begin, end]) => begin <= data.time[i] && data.time[i] <= end);
  return found.length ? found[found.length - 1][0] : "";
}
function show(i) {
  chosen = i;
  moment.value = String(Math.round(share(i) * 1000));
  const now = document.getElementById("now");
  now.setAttribute("x1", x(i));
  now.setAttribute("x2", x(i));
  const phase = phaseOf(i);
  $("said").textContent = `${i === data.peak ? "At the peak" : `After ${time(data.time[i])}`}${phase ? `, in ${phase}` : ""}: ${size(totals[i])} live${data.reserved ? `, ${size(data.reserved[i])} reserved` : ""}`;
  const rows = new Map();
  let known = 0;
  for (const [module, category, at, begin, end, bytes, count] of data.groups) {
    if (begin > i || end <= i) continue;
    known += bytes;
    const key = `${module} ${category}`;
    const row = rows.get(key) || { module, category, bytes: 0, count: 0, lines: new Map() };
    row.bytes += bytes;
    row.count += count;
    row.lines.set(at, (row.lines.get(at) || 0) + bytes);
    rows.set(key, row);
  }
  const sorted = [...rows.values()].sort((a, b) => b.bytes - a.bytes);
  $("alive").replaceChildren(...sorted.slice(0, SHOWN).map((row) => {
    const main = [...row.lines].sort((a, b) => b[1] - a[1])[0][0];
    return el("tr", {}, el("td", {}, el("i", { class: `k${row.category}` }), data.all[row.category]),
      el("td", { class: "right num", title: `${row.bytes} B in ${row.count}` }, size(row.bytes)),
      el("td", {}, el("bdi", { class: "name" }, data.modules[row.module])),
      el("td", {}, el("bdi", { class: "name" }, data.lines[main])));
  }));
  const shown = sorted.slice(0, SHOWN).reduce((sum, row) => sum + row.bytes, 0);
  const rest = totals[i] - data.values[data.values.length - 1][i] - shown;
  $("more").textContent = rest > 0 ? `and ${size(rest)} in ${Math.max(sorted.length - SHOWN, 0)} more rows${known < shown + rest ? " and smaller allocations" : ""}` : "";
}
// Show what is at a share of the axis. A state lasts until the next.
function showAt(wanted) {
  let i = along === "time" ? momentOf(wanted * last) : Math.round(wanted * (n - 1));
  if (along === "time" && i > 0 && data.time[i] > wanted * last) i -= 1;
  show(i);
}
function pick(event) {
  const at = event.clientX - chart.getBoundingClientRect().left - left;
  showAt(Math.max(0, Math.min(1, at / (width - left - 8))));
}
moment.addEventListener("input", () => {
  const wanted = moment.value;
  showAt(Number(wanted) / 1000);
  moment.value = wanted;
});
chart.addEventListener("click", pick);
for (const input of document.querySelectorAll('input[name="along"]')) input.addEventListener("change", () => { along = input.value; draw(); });
window.addEventListener("resize", draw);
draw();
