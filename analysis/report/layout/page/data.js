// What the page shows: the JSON in it, which payload.py makes.
const data = JSON.parse(document.getElementById("data").textContent);
const { sides, modules, layers } = data;
const rules = new Map(Object.entries(data.rules));
const panels = data.panels;
const $ = (id) => document.getElementById(id);
document.body.classList.add("script");
