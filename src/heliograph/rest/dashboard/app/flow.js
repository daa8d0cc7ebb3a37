// One flow: its state and what can be done with it, its figures over time, and all that is in it.

import { flowAdvice } from "./advice.js";
import { charts } from "./charts.js";
import { commandButton } from "./commands.js";
import { empty, h, put } from "./dom.js";
import { events } from "./events.js";
import { failover } from "./failover.js";
import { byteRate, duration, flowName, lasting, records, when, whole, withUnit, UNKNOWN } from "./format.js";
import { conditionOf } from "./health.js";
import { conditionBadge, stateBadge } from "./icons.js";
import { linkTo } from "./links.js";
import { configuration, groups, jobs } from "./panels.js";
import { recoveryOf, riskOf } from "./risk.js";
import { flowNamed, on, permission } from "./store.js";
import { facts, partitions, topics } from "./tables.js";

/** Tabs of a flow; all but those of `OF_ONE` are views of all flows too. */
export const TABS = {
  partitions: ["Partitions", partitions],
  topics: ["Topics", topics],
  groups: ["Groups", groups],
  failover: ["Failover", failover],
  jobs: ["Jobs", jobs],
  events: ["Events", (flow) => events(flow)],
  configuration: ["Configuration", configuration],
};

export const OF_ONE = ["partitions", "failover"];

export function flowView(name, tab, about) {
  if (!flowNamed(name)) return unknown(name);
  const told = h("p", { class: "told", role: "status" });
  const tell = (text, bad) => {
    told.textContent = text;
    told.classList.toggle("problem", bad);
  };
  const title = h("div", { class: "title" });
  const buttons = h("div", { class: "buttons" });
  const figures = h("div", { class: "flow-figures" });
  const parts = h("div", { class: "parts" });
  const shown = TABS[tab] ? tab : "partitions";
  const over = charts(name);
  const panel = TABS[shown][1](name, about);
  let drawn = "";

  function draw() {
    const flow = flowNamed(name);
    if (!flow) return;
    const { state, reason, next_try: next } = flow.life;
    const advice = flowAdvice(flow.life);
    put(title, h("h1", { title: name }, flowName(name)), conditionBadge(conditionOf(flow)));
    put(figures, reason ? h("p", { class: "reason" }, reason, next ? h("span", { class: "muted" }, " Next try ", when(next), ".") : null) : null,
      advice ? h("p", { class: "advice" }, state === "failed" ? h("b", {}, "What to do: ") : null, advice) : null,
      h("p", { class: "risk" }, riskOf(flow)), factsOf(flow));
    // Buttons stay as they are while nothing has changed, so that no click gets lost.
    const key = JSON.stringify([permission().may, flow.life.state, flow.parts]);
    if (key === drawn) return;
    drawn = key;
    put(buttons, flowButtons(flow, tell));
    put(parts, Object.entries(flow.parts).map(([part, life]) => partCard(name, part, life, tell)));
  }

  draw();
  const off = on("flows", draw);
  const tabs = h("nav", { class: "tabs", "aria-label": `Of flow ${name}` },
    Object.entries(TABS).map(([key, [text]]) => h("a", { href: linkTo(name, key), "aria-current": key === shown ? "page" : null }, text)));
  const element = h("div", { class: "stack" },
    h("section", { class: "card" }, h("p", { class: "crumb" }, h("a", { href: "#/" }, "← All flows")),
      h("div", { class: "card-head" }, title, buttons), told, figures, parts),
    over.element, h("section", { class: "card", id: "tab" }, tabs, panel.element));
  return {
    element,
    ready: panel.ready,
    close() {
      off();
      over.close();
      panel.close();
    },
  };
}

function unknown(name) {
  const back = h("p", { class: "center" }, h("a", { href: "#/" }, "← All flows"));
  return { element: h("section", { class: "card" }, empty(`There is no flow ${name}`), back), close() {} };
}

function flowButtons(flow, tell) {
  const { may, why } = permission();
  if (!may) return h("p", { class: "muted why-not" }, why);
  const lives = Object.values(flow.parts);
  const paused = lives.some((life) => life.state === "paused");
  const going = lives.some((life) => life.state !== "paused");
  const what = { flow: flow.flow };
  return [going ? commandButton("pause", what, tell) : null, paused ? commandButton("resume", what, tell) : null, commandButton("restart", what, tell)];
}

function factsOf(flow) {
  const { canary } = flow;
  const skew = canary?.skew_seconds;
  return facts(
    ["Lag", records(flow.lag_records, flow.unmeasured > 0, whole)],
    ["Behind", duration(flow.lag_seconds)],
    ["Throughput", [withUnit(flow.records_per_second, "rec/s"), byteRate(flow.bytes_per_second)].filter((text) => text !== UNKNOWN).join(" · ") || UNKNOWN],
    ["Mirrored", records(flow.records_total)],
    ["Canary latency", canary ? duration(canary.latency_seconds) : UNKNOWN],
    ["Clock skew", skew === null || skew === undefined ? UNKNOWN : `${skew < 0 ? "−" : ""}${duration(Math.abs(skew))}`],
    ...(canary?.lost ? [["Canaries lost", whole(canary.lost)]] : []),
    ["Recovery", recoveryOf(flow)],
    ["Measured", when(flow.measured_at)],
  );
}

function partCard(flow, part, life, tell) {
  return h("div", { class: "part" },
    h("div", { class: "part-head" }, h("h3", {}, part), stateBadge(life.state)),
    h("p", { class: "muted" }, lasting(life.since), life.next_try ? [", tried again ", when(life.next_try)] : null),
    life.reason ? h("p", { class: "reason" }, life.reason) : null,
    h("div", { class: "buttons small" }, commandButton(life.state === "paused" ? "resume" : "pause", { flow, part }, tell),
      commandButton("restart", { flow, part }, tell)));
}
