// Lag, throughput and the canary over time: three charts that are read together.

import { Chart, DURATIONS, MOST_LINES } from "./chart.js";
import { choice, h, put } from "./dom.js";
import { amount, bytes, duration } from "./format.js";
import { BYTES, CANARY, History, LAG_RECORDS, LAG_SECONDS, RECORDS } from "./history.js";
import { store } from "./store.js";

const RANGES = [[900, "15 min"], [3600, "1 h"], [7200, "2 h"]];
const SHOW = {
  [LAG_RECORDS]: { show: amount, least: 8 },
  [LAG_SECONDS]: { show: duration, least: 4, ladder: DURATIONS },
  [RECORDS]: { show: (value) => `${amount(value)}/s`, least: 8 },
  [BYTES]: { show: (value) => `${bytes(value)}/s`, least: 1000 },
  [CANARY]: { show: duration, least: 0.1, ladder: DURATIONS, nothing: "No canary was seen in this time" },
};

/** The card, of one flow or of all (null). */
export function charts(flow) {
  const places = [LAG_RECORDS, RECORDS, CANARY];
  const made = [];
  for (const title of ["Lag", "Throughput", "Canary latency"]) {
    const chart = new Chart(title, (at) => made.forEach((other) => other !== chart && other.read(at, false)));
    made.push(chart);
  }
  const history = new History(flow, draw);
  const bar = h("div", { class: "table-bar" });

  function draw() {
    const common = flow === null ? worstFlows() : { flows: [flow], more: "" };
    made.forEach((chart, number) => chart.show(history, { ...common, place: places[number], ...SHOW[places[number]] }));
  }

  function controls() {
    const pick = (number) => (place) => {
      places[number] = place;
      controls();
      draw();
    };
    const range = (seconds) => {
      history.choose(seconds);
      controls();
    };
    put(bar,
      choice("Lag in", [[LAG_RECORDS, "records"], [LAG_SECONDS, "seconds"]], places[0], pick(0)),
      choice("Throughput in", [[RECORDS, "records/s"], [BYTES, "bytes/s"]], places[1], pick(1)),
      choice("Time", RANGES, history.seconds, range));
  }

  controls();
  draw();
  const element = h("section", { class: "card", "aria-label": "Over time" },
    h("div", { class: "card-head" }, h("h2", {}, "Over time"), bar),
    h("div", { class: "charts" }, made.map((chart) => chart.element)));
  return {
    element,
    close() {
      history.close();
      made.forEach((chart) => chart.close());
    },
  };
}

/** As many flows as can be told apart: those that are furthest behind, in the order of all. */
function worstFlows() {
  const all = store.flows ?? [];
  const worst = [...all].sort((a, b) =>
    (b.lag_seconds ?? -1) - (a.lag_seconds ?? -1) || (b.records_per_second ?? 0) - (a.records_per_second ?? 0));
  const shown = new Set(worst.slice(0, MOST_LINES));
  const more = all.length - shown.size;
  return { flows: all.filter((one) => shown.has(one)).map((one) => one.flow), more: more > 0 ? `and ${more} more` : "" };
}
