// Precisions: one panel of columns at a time, everywhere on the page.
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
  const k = panels.findIndex((p) => hash === p.key || ["ledger", "modules", "kinds"].some((s) => hash === `${s}-${p.key}`));
  if (k < 0) return;
  choose(k);
  const to = hash === panels[k].key ? null : $(hash.slice(0, -panels[k].key.length - 1));
  if (to) to.scrollIntoView();
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
