// Numbers and names, as formatting.py writes them.
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
function costInterval(c) {
  if (!c || !known(c[0])) return "";
  if (!known(c[1]) || !known(c[2])) return "no interval";
  const own = timeRange(c[1], c[2]);
  if (c[3] === 0) return `95 %: ${own}`;
  return `95 %: own ${own}, with shared ${known(c[5]) && known(c[6]) ? timeRange(c[5], c[6]) : "unknown"}`;
}
// A number and its unit stay on one line.
const tie = (text) => text.replace(/(?<=\d) (?=(?:%|ns|µs|ms|s)(?!\w))/g, "\u00a0");
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

const ratio = (v) => {
  if (!known(v)) return "–";
  let decimals = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
  const edge = (text) => v !== Number(text) && (Number(text) === 0 || Number(text) === 1);
  while (decimals < 4 && edge(v.toFixed(decimals))) decimals += 1;
  const text = v.toFixed(decimals);
  return edge(text) ? `${v > Number(text) ? ">" : "<"}${Number(text).toFixed(2)}×` : `${text}×`;
};
// As cells.change: the difference and the ratio of two costs, and what each is sorted by.
const signed = (ns) => (ns > 0 ? `+${time(ns)}` : time(ns));
function changeOf(over, under) {
  const none = { difference: "–", ratio: "–", sort: [null, null] };
  if (![over, under].every((c) => c && known(c[0]) && known(c[3]))) return none;
  const [a, b] = [over[0], under[0]];
  const [aUpper, bUpper] = [a + over[3], b + under[3]];
  const [least, most] = [signed(b - aUpper), signed(bUpper - a)];
  const difference = least === most ? least : `${least} to ${most}`;
  const sort = [(b + bUpper - a - aUpper) / 2, b + bUpper ? (a + aUpper) / (b + bUpper) : null];
  if (!aUpper || !bUpper) return { difference, ratio: "–", sort };
  const [low, high] = [ratio(a / bUpper), b ? ratio(aUpper / b) : "–"];
  const times = low === high ? low : !a || !b ? (a ? `≥ ${low}` : b ? `≤ ${high}` : "–") : `${low} to ${high}`;
  return { difference, ratio: times, sort };
}
function floorOf(f) {
  if (!f) return "–";
  const work = `${known(f.flop) ? f.flop.toLocaleString("en-US") : "–"} FLOP, ${known(f.bytes) ? f.bytes.toLocaleString("en-US") : "–"} bytes`;
  return known(f.times) && known(f.ns) ? `${f.times.toFixed(2)}× the ${time(f.ns)} that its ${f.limit} need at least (${work})` : work;
}
