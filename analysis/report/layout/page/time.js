// Times, as formatting.time writes them.
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
