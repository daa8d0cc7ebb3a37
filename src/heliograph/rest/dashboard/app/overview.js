// All flows at a glance: the sentence, the figures, the picture, what needs somebody, over time.

import { attention } from "./attention.js";
import { charts } from "./charts.js";
import { h, put } from "./dom.js";
import { events } from "./events.js";
import { amount, byteRate, count, duration, flowName, whole, withUnit } from "./format.js";
import { conditionOf, sentenceOf } from "./health.js";
import { conditionBadge, sign } from "./icons.js";
import { linkTo } from "./links.js";
import { worstRisk } from "./risk.js";
import { on, store } from "./store.js";
import { topology } from "./topology.js";

const card = (title, ...content) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), content);
const known = (flows, name) => flows.map((flow) => flow[name]).filter((value) => value !== null);
const total = (flows, name) => (known(flows, name).length ? known(flows, name).reduce((sum, value) => sum + value, 0) : null);
const greatest = (values) => (values.length ? Math.max(...values) : null);

export function overview() {
  const head = h("div", { class: "health" });
  const tiles = h("dl", { class: "tiles" });
  const rows = h("tbody");
  const parts = [topology((flow) => { location.hash = linkTo(flow).slice(1); }), attention(), charts(null), events(null, 8)];
  const [picture, needs, over, recent] = parts;
  function draw() {
    const flows = store.flows ?? [];
    const { kind, text } = sentenceOf(flows, store.engine);
    put(head, h("h1", { class: kind }, sign(kind, kind), h("span", {}, text)),
      h("p", { class: "risk" }, worstRisk(flows)));
    put(tiles, figures(flows));
    put(rows, flows.map(row));
  }
  draw();
  const off = on("flows", draw);
  const element = h("div", { class: "stack" }, head, tiles, card("Topology", picture.element), needs.element, over.element,
    card("Flows", table(rows)), card("Latest events", recent.element));
  return {
    element,
    close() {
      off();
      parts.forEach((part) => part.close());
    },
  };
}

function figures(flows) {
  const { engine } = store;
  const running = flows.filter((flow) => flow.life.state === "running").length;
  const partitions = flows.reduce((sum, flow) => sum + flow.partitions, 0);
  const topics = flows.reduce((sum, flow) => sum + flow.topics, 0);
  const troubled = flows.reduce((sum, flow) => sum + (flow.states.failed ?? 0) + (flow.states.stalled ?? 0), 0);
  const canaries = flows.map((flow) => flow.canary?.latency_seconds).filter((value) => value !== null && value !== undefined);
  const oldest = greatest(known(flows, "lag_seconds"));
  const unmeasured = flows.some((flow) => flow.unmeasured);
  return [
    tile("Throughput", withUnit(total(flows, "records_per_second"), "rec/s"), byteRate(total(flows, "bytes_per_second"))),
    tile("Lag in records", `${amount(total(flows, "lag_records"))}${unmeasured ? "+" : ""}`, oldest === null ? "not measured yet" : `oldest waits ${duration(oldest)}`),
    tile("Canary latency", duration(greatest(canaries)), canaries.length ? "of the slowest flow" : "no probe was seen yet"),
    tile("Partitions", whole(partitions), `${count(topics, "topic")}${troubled ? `, ${troubled} in trouble` : ""}`),
    tile("Flows running", `${running} of ${flows.length}`, engine ? `Spark ${engine.state}${engine.slots ? `, ${count(engine.slots, "slot")}` : ""}` : "no Spark is needed"),
  ];
}

const tile = (name, value, more) =>
  h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", { class: "muted" }, more)));

const COLUMNS = [
  ["State", "", (flow) => conditionBadge(conditionOf(flow))],
  ["Topics", "number", (flow) => whole(flow.topics)],
  ["Partitions", "number", (flow) => whole(flow.partitions)],
  ["Lag", "number", (flow) => `${amount(flow.lag_records)}${flow.unmeasured ? "+" : ""}`],
  ["Behind", "number", (flow) => duration(flow.lag_seconds)],
  ["Records/s", "number", (flow) => amount(flow.records_per_second)],
  ["Bytes/s", "number", (flow) => byteRate(flow.bytes_per_second)],
  ["Canary", "number", (flow) => duration(flow.canary?.latency_seconds)],
];

function row(flow) {
  return h("tr", {},
    h("th", { scope: "row", "data-label": "Flow" }, h("a", { href: linkTo(flow.flow), "data-key": `row:${flow.flow}`, title: flow.flow }, flowName(flow.flow))),
    COLUMNS.map(([title, name, cell]) => h("td", { class: name, "data-label": title }, cell(flow))));
}

function table(rows) {
  const titles = [["Flow", ""], ...COLUMNS];
  return h("div", { class: "table" }, h("table", {},
    h("thead", {}, h("tr", {}, titles.map(([title, name]) => h("th", { scope: "col", class: name || null }, title)))), rows));
}
