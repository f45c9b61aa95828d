// What happens when all is set up, and when the page is printed.
if (panels.length > 1) {
  choose(data.first);
  fromHash();
}

unfold();

// Everything that is folded away is printed.
const folded = () => [...document.querySelectorAll("details:not([open])")];
let toFold = [];
window.addEventListener("beforeprint", () => { toFold = folded(); for (const d of toFold) d.open = true; });
window.addEventListener("afterprint", () => { for (const d of toFold) d.open = false; });
