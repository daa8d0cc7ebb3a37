// Events as they happen. Whoever reads can stop the list from moving.

import { choice, empty, h, put, whenReleased } from "./dom.js";
import { absolute, dayAndClock, flowName } from "./format.js";
import { sign } from "./icons.js";
import { on, store } from "./store.js";

const SHOWN = 200;
const LEVELS = [["", "All"], ["warning", "Warnings"], ["error", "Errors"]];
const WORST = { warning: ["warning", "error", "critical"], error: ["error", "critical"] };

/** `flow`: only of this one; `most`: a short list without controls. */
export function events(flow, most = 0) {
  let level = "";
  let chosen = flow;
  let held = false;
  const list = h("ol", { class: "events" });
  const bar = h("div", { class: "table-bar" });
  const element = h("div", { class: "table" }, most ? null : bar, list);

  function draw() {
    const fits = (event) => (!level || WORST[level].includes(event.level)) && (chosen === null || event.flow === chosen);
    const shown = store.events.filter(fits).slice(-(most || SHOWN)).reverse();
    const none = () => h("li", {}, empty("Nothing happened yet", level ? "No event of this level is kept." : ""));
    put(list, shown.length ? shown.map(line) : none());
  }

  function ofFlow() {
    const pick = (event) => {
      chosen = event.target.value || null;
      draw();
    };
    const options = (store.flows ?? []).map((one) =>
      h("option", { value: one.flow, selected: one.flow === chosen }, flowName(one.flow)));
    return h("label", { class: "field" }, h("span", {}, "Flow"),
      h("select", { "data-key": "flow", onchange: pick }, h("option", { value: "" }, "All flows"), options));
  }

  function controls() {
    const hold = () => {
      held = !held;
      controls();
      if (!held) draw();
    };
    const pick = (value) => {
      level = value;
      controls();
      draw();
    };
    put(bar, choice("Level", LEVELS, level, pick), flow === null ? ofFlow() : null,
      h("button", { type: "button", "aria-pressed": String(held), "data-key": "hold", onclick: hold }, held ? "Go on" : "Hold the list"),
      store.missed ? h("span", { class: "muted" }, `${store.missed} events were missed`) : null);
  }

  controls();
  draw();
  let waiting = false;
  const off = on("events", () => {
    if (held || waiting) return;
    waiting = true;
    requestAnimationFrame(() => whenReleased(() => {
      waiting = false;
      if (!held) draw();
    }));
  });
  return { element, close: off };
}

const SIGNS = { info: ["ok", "quiet"], debug: ["ok", "quiet"], warning: ["warn", "warn"], error: ["failed", "bad"], critical: ["failed", "bad"] };

/** The log's line in two: what it is about, and what happened; the code stands at the end. */
function line(event) {
  const ms = Date.parse(event.at);
  const mark = event.code ? ` [${event.code}]: ` : "";
  const at = mark ? event.line.indexOf(mark) : -1;
  const [about, text] = at < 0 ? ["", event.line] : [event.line.slice(0, at), event.line.slice(at + mark.length)];
  return h("li", { class: `event ${event.level}` },
    h("time", { datetime: event.at, title: Number.isNaN(ms) ? "" : absolute(ms) }, Number.isNaN(ms) ? "" : dayAndClock(ms)),
    h("span", { class: "level" }, sign(...(SIGNS[event.level] ?? SIGNS.info)), event.level),
    h("span", { class: "text" }, about ? h("b", {}, about) : null, about ? " " : null, text, event.code ? [" ", h("code", {}, event.code)] : null));
}
