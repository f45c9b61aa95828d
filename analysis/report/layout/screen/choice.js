// The first screen: which comparison it shows, and the evidence that its chips lead to.
let screen = 0;
const rechosen = []; // called after another comparison was chosen
// The two sides of the chosen comparison, [slower kind, engine]; null where there is no ratio.
function pair() {
  const [over, under, wrong] = data.screens[screen] || [null, null, true];
  return !wrong && known(over) && known(under) ? [over, under] : null;
}
// A sweep has no sides to draw: its own charts stand there.
const drawnHere = () => { if ($("icicles") && data.icicles.sides.some((s) => s)) $("icicles").hidden = !data.screens[screen].some((s) => known(s)); };
function chooseScreen(k) {
  screen = k;
  for (const e of document.querySelectorAll("[data-screen]")) e.hidden = Number(e.dataset.screen) !== k;
  const [, under] = data.screens[k];
  drawnHere();
  if (known(under) && !panels[panel].sides.includes(under)) choose(panels.findIndex((p) => p.sides.includes(under)));
  for (const f of rechosen) f();
}
if ($("screen")) $("screen").addEventListener("change", (event) => chooseScreen(Number(event.target.value)));
if (data.screens.length) drawnHere();
// What an address names is opened, and with it all that is folded around it.
function unfold() {
  const target = window.location.hash.length > 1 ? $(window.location.hash.slice(1)) : null;
  if (!target) return;
  for (let d = target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  target.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
