"use strict";
const form = document.querySelector("form");
const box = document.querySelector("input");
const count = document.querySelector("output");
const main = document.querySelector("main");
const sections = [...document.querySelectorAll("section")];
const rows = [...document.querySelectorAll("[data-q]")].map((element) => ({
  element,
  section: element.closest("section"),
  names: ` ${element.dataset.q} `,
  text: `${element.dataset.q} ${element.textContent}`.toLowerCase(),
}));
const nodes = rows.filter((row) => row.section.id === "nodes");
const AT_ONCE = 500; // more rows than fit into a window
let turn = 0;

// All words must be there: anywhere, but fabric:ib-a and the like as they stand and as a whole.
const named = /^(node|group|fabric|hca|release|server|certificate|ends):/;

async function search() {
  const mine = ++turn;
  const words = box.value.split(/\s+/).filter(Boolean);
  const whole = words.filter((word) => named.test(word)).map((word) => ` ${word} `);
  const parts = words.filter((word) => !named.test(word)).map((word) => word.toLowerCase());
  const found = new Set(rows.filter(({ names, text }) =>
    whole.every((name) => names.includes(name)) && parts.every((part) => text.includes(part))));
  // While something is looked for, only what has it is shown.
  const having = new Set([...found].map((row) => row.section));
  document.body.classList.toggle("searching", words.length > 0);
  for (const section of sections) section.hidden = words.length > 0 && !having.has(section);
  count.value = `${nodes.filter((row) => found.has(row)).length} of ${nodes.length}`;
  for (const row of rows) if (!found.has(row) && !row.element.hidden) row.element.hidden = true;
  // The first are there at once; the others follow, so that the next letter need not wait.
  const missing = [...found].filter((row) => row.element.hidden);
  main.ariaBusy = missing.length > AT_ONCE;
  while (missing.length) {
    for (const row of missing.splice(0, AT_ONCE)) row.element.hidden = false;
    await new Promise(requestAnimationFrame);
    if (mine !== turn) return;
  }
  main.ariaBusy = false;
}

function follow() {
  const asked = new URLSearchParams(location.hash.slice(1)).get("q") ?? "";
  if (asked === box.value) return;
  box.value = asked;
  search();
  if (asked) scrollTo(0, 0);
}

box.addEventListener("input", () => {
  // So that a link to what was looked for before works again.
  if (location.hash) history.replaceState(null, "", "#");
  search();
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", follow);
form.hidden = false;
follow();
