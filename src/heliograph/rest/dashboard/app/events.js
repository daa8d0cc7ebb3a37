// Events as they happen. Whoever reads can stop the list from moving.

import { choice, empty, h, put } from "./dom.js";
import { absolute, clock } from "./format.js";
import { on, store } from "./store.js";

const SHOWN = 200;
const LEVELS = [["", "All"], ["warning", "Warnings"], ["error", "Errors"]];
const WORST = { warning: ["warning", "error", "critical"], error: ["error", "critical"] };

/** `flow`: only of this one; `most`: a short list without controls. */
export function events(flow, most = 0) {
  let level = "";
  let chosen = flow;
  let paused = false;
  const list = h("ol", { class: "events" });
  const bar = h("div", { class: "table-bar" });
  const element = h("div", { class: "table" }, most ? null : bar, list);

  function draw() {
    const fitting = store.events.filter((event) => (!level || WORST[level].includes(event.level)) && (chosen === null || event.flow === chosen));
    const shown = fitting.slice(-(most || SHOWN)).reverse();
    put(list, shown.length ? shown.map(line) : h("li", {}, empty("Nothing happened yet", level ? "No event of this level is kept." : "")));
  }

  function controls() {
    put(bar,
      choice("Level", LEVELS, level, (value) => { level = value; controls(); draw(); }),
      flow === null ? h("label", { class: "field" }, h("span", {}, "Flow"), h("select", { "data-key": "flow", onchange: (event) => { chosen = event.target.value || null; draw(); } },
        h("option", { value: "" }, "All flows"), (store.flows ?? []).map((one) => h("option", { value: one.flow, selected: one.flow === chosen }, one.flow)))) : null,
      h("button", { type: "button", "aria-pressed": String(paused), "data-key": "hold", onclick: () => { paused = !paused; controls(); if (!paused) draw(); } }, paused ? "Go on" : "Hold the list"),
      store.missed ? h("span", { class: "muted" }, `${store.missed} events were missed`) : null);
  }

  controls();
  draw();
  let waiting = false;
  const off = on("events", () => {
    if (paused || waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; if (!paused) draw(); });
  });
  return { element, close: off };
}

function line(event) {
  const ms = Date.parse(event.at);
  return h("li", { class: `event ${event.level}` },
    h("time", { datetime: event.at, title: Number.isNaN(ms) ? "" : absolute(ms) }, Number.isNaN(ms) ? "" : clock(ms)),
    h("span", { class: "level" }, event.level), h("span", { class: "text" }, event.line));
}
