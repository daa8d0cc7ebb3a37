// The views: all flows, and one flow.

import { flowAdvice } from "./advice.js";
import { Chart, MOST_LINES } from "./chart.js";
import { commandButton } from "./commands.js";
import { choice, empty, h, put } from "./dom.js";
import { events } from "./events.js";
import { amount, bytes, count, duration, when, whole, UNKNOWN } from "./format.js";
import { conditionOf, sentenceOf } from "./health.js";
import { BYTES, CANARY, History, LAG_RECORDS, LAG_SECONDS, RECORDS } from "./history.js";
import { conditionBadge, sign, stateBadge } from "./icons.js";
import { configuration, facts, groups, jobs, partitions, topics } from "./panels.js";
import { flowNamed, on, permission, store } from "./store.js";
import { topology } from "./topology.js";

const RANGES = [[900, "15 min"], [3600, "1 h"], [7200, "2 h"]];
const linkTo = (flow, tab = "") => `#/flow/${encodeURIComponent(flow)}${tab ? `/${tab}` : ""}`;
const card = (title, ...content) => h("section", { class: "card" }, title ? h("h2", {}, title) : null, content);

/** Lag, throughput and the canary over time. */
function charts(flow) {
  const unit = { lag: LAG_RECORDS, rate: RECORDS };
  const made = [];
  const follow = (from) => (at) => made.forEach((chart) => chart !== from && chart.read(at, false));
  for (const title of ["Lag", "Throughput", "Canary latency"]) {
    const chart = new Chart(title, (at) => follow(chart)(at));
    made.push(chart);
  }
  const history = new History(flow, draw);
  const bar = h("div", { class: "table-bar end" });
  function names() {
    if (flow !== null) return [[flow], ""];
    const all = [...(store.flows ?? [])].sort((a, b) => (b.lag_seconds ?? -1) - (a.lag_seconds ?? -1) || (b.records_per_second ?? 0) - (a.records_per_second ?? 0));
    const shown = new Set(all.slice(0, MOST_LINES).map((one) => one.flow));
    const more = all.length - shown.size;
    return [(store.flows ?? []).map((one) => one.flow).filter((one) => shown.has(one)), more > 0 ? `and ${more} more` : ""];
  }
  function draw() {
    const [flows, more] = names();
    const common = { flows, more };
    made[0].show(history, { ...common, place: unit.lag, show: unit.lag === LAG_RECORDS ? amount : duration, least: unit.lag === LAG_RECORDS ? 10 : 1 });
    made[1].show(history, { ...common, place: unit.rate, show: unit.rate === RECORDS ? (v) => `${amount(v)}/s` : (v) => `${bytes(v)}/s`, least: unit.rate === RECORDS ? 10 : 1000 });
    made[2].show(history, { ...common, place: CANARY, show: duration, least: 0.1, nothing: "No canary was seen in this time" });
  }
  function controls() {
    put(bar,
      choice("Lag in", [[LAG_RECORDS, "records"], [LAG_SECONDS, "seconds"]], unit.lag, (value) => { unit.lag = value; controls(); draw(); }),
      choice("Throughput in", [[RECORDS, "records/s"], [BYTES, "bytes/s"]], unit.rate, (value) => { unit.rate = value; controls(); draw(); }),
      choice("Time", RANGES, history.seconds, (value) => { history.choose(value); controls(); }));
  }
  controls();
  draw();
  return { element: h("section", { class: "card", "aria-label": "Over time" }, h("div", { class: "card-head" }, h("h2", {}, "Over time"), bar), h("div", { class: "charts" }, made.map((chart) => chart.element))), close: () => { history.close(); made.forEach((chart) => chart.close()); } };
}

export function overview() {
  const head = h("div", { class: "health" });
  const table = h("tbody");
  const picture = topology((flow) => { location.hash = linkTo(flow).slice(1); });
  const over = charts(null);
  const recent = events(null, 8);
  function draw() {
    const flows = store.flows ?? [];
    const { kind, text } = sentenceOf(flows);
    const total = (name) => (flows.some((flow) => flow[name] !== null) ? flows.reduce((sum, flow) => sum + (flow[name] ?? 0), 0) : null);
    put(head, h("h1", { class: kind }, sign(kind, kind), text), h("p", { class: "muted" }, [count(flows.reduce((sum, flow) => sum + flow.partitions, 0), "partition"), `${amount(total("records_per_second"))} records/s`, `${bytes(total("bytes_per_second"))}/s`, `lag ${amount(total("lag_records"))}`, store.engine ? `Spark ${store.engine.state}` : null].filter(Boolean).join(" · ")));
    const label = (text_, content, name = "number") => h("td", { class: name, "data-label": text_ }, content);
    put(table, flows.map((flow) => h("tr", {}, h("th", { scope: "row", "data-label": "Flow" }, h("a", { href: linkTo(flow.flow), "data-key": `row:${flow.flow}` }, flow.flow)),
      label("State", conditionBadge(conditionOf(flow)), ""), label("Topics", whole(flow.topics)), label("Partitions", whole(flow.partitions)),
      label("Lag", `${amount(flow.lag_records)}${flow.unmeasured ? "+" : ""}`), label("Age", duration(flow.lag_seconds)), label("Records/s", amount(flow.records_per_second)), label("Bytes/s", flow.bytes_per_second === null ? UNKNOWN : `${bytes(flow.bytes_per_second)}/s`), label("Canary", duration(flow.canary?.latency_seconds)))));
  }
  draw();
  const off = on("flows", draw);
  const titles = ["Flow", "State", "Topics", "Partitions", "Lag", "Age", "Records/s", "Bytes/s", "Canary"];
  const element = h("div", { class: "stack" }, head, card("Topology", picture.element), over.element,
    card("Flows", h("div", { class: "table" }, h("table", {}, h("thead", {}, h("tr", {}, titles.map((title, n) => h("th", { scope: "col", class: n > 1 ? "number" : null }, title)))), table))),
    card("Latest events", recent.element));
  return { element, close: () => { off(); picture.close(); over.close(); recent.close(); } };
}

const TABS = { partitions: ["Partitions", partitions], topics: ["Topics", topics], groups: ["Groups", groups], jobs: ["Jobs", jobs], events: ["Events", events], configuration: ["Configuration", configuration] };

/** The panel of a name, of all flows. */
export function global(name) {
  const [title, make] = TABS[name];
  const panel = make(null);
  return { element: h("div", { class: "stack" }, h("h1", {}, title), h("section", { class: "card" }, panel.element)), close: () => panel.close() };
}

export function flowView(name, tab) {
  const head = h("div", { class: "flow-head" });
  const told = h("p", { class: "told", role: "status" });
  const tell = (text, bad) => { told.textContent = text; told.classList.toggle("problem", bad); };
  if (!flowNamed(name)) return { element: h("div", { class: "stack" }, h("section", { class: "card" }, empty(`There is no flow ${name}`), h("p", {}, h("a", { href: "#/" }, "All flows")))), close() {} };
  const parts = h("div", { class: "parts" });
  const over = charts(name);
  const panel = (TABS[tab] ?? TABS.partitions)[1](name);
  function draw() {
    const flow = flowNamed(name);
    if (!flow) return;
    const { may, why } = permission();
    const state = flow.life.state;
    const advice = state === "running" ? "" : flowAdvice(state);
    put(head, h("div", { class: "title" }, h("p", { class: "crumb" }, h("a", { href: "#/" }, "All flows")), h("h1", {}, name), conditionBadge(conditionOf(flow))),
      h("div", { class: "buttons" }, may ? [state === "paused" ? null : commandButton("pause", { flow: name }, tell), commandButton("resume", { flow: name }, tell), commandButton("restart", { flow: name }, tell)] : h("p", { class: "muted why-not" }, why)),
      flow.life.reason || advice ? h("p", { class: "reason" }, [flow.life.reason, advice].filter(Boolean).join(" ")) : null,
      facts(["Lag", `${whole(flow.lag_records)}${flow.unmeasured ? "+" : ""} records`], ["Age", duration(flow.lag_seconds)], ["Records/s", amount(flow.records_per_second)], ["Bytes/s", flow.bytes_per_second === null ? UNKNOWN : `${bytes(flow.bytes_per_second)}/s`], ["Mirrored", amount(flow.records_total)], ["Canary", duration(flow.canary?.latency_seconds)], ["Measured", when(flow.measured_at)]));
    put(parts, Object.entries(flow.parts).map(([part, life]) => h("div", { class: "part" }, h("div", { class: "part-head" }, h("h3", {}, part), stateBadge(life.state)),
      h("p", { class: "muted" }, "since ", when(life.since), life.next_try ? [", tried again ", when(life.next_try)] : null), life.reason ? h("p", { class: "reason" }, life.reason, life.code ? h("code", {}, life.code) : null) : null,
      h("div", { class: "buttons small" }, commandButton(life.state === "paused" ? "resume" : "pause", { flow: name, part }, tell), commandButton("restart", { flow: name, part }, tell)))));
  }
  draw();
  const off = on("flows", draw);
  const tabs = h("nav", { class: "tabs", "aria-label": `Of flow ${name}` }, Object.entries(TABS).map(([key, [title]]) => h("a", { href: linkTo(name, key), "aria-current": key === tab ? "page" : null }, title)));
  return { element: h("div", { class: "stack" }, h("section", { class: "card" }, head, told, parts), over.element, h("section", { class: "card" }, tabs, panel.element)), close: () => { off(); over.close(); panel.close(); } };
}
