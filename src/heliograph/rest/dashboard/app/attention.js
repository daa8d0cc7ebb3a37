// What needs somebody, why, and what to do: of all flows, the worst first.

import { adviceFor, flowAdvice, isBad } from "./advice.js";
import { flowPath, get } from "./api.js";
import { h, put, selectedIn, whenReleased } from "./dom.js";
import { count, flowName, lasting, when } from "./format.js";
import { kindOf, stateBadge } from "./icons.js";
import { linkTo } from "./links.js";
import { on, store } from "./store.js";

const SHOWN = 5;
const FLOWS = 5;
/** Reasons are asked for when a count has changed, and else so often. */
const EVERY_MS = 20000;

const signature = (flow) => JSON.stringify([flow.flow, flow.life.state, flow.life.reason, flow.states.failed, flow.states.stalled, flow.failing_jobs, flow.diverged_records]);
const isTroubled = (flow) => flow.life.state === "failed" || flow.states.failed || flow.states.stalled || flow.failing_jobs || flow.diverged_records;

/** A card that is hidden while nothing needs anybody. */
export function attention() {
  const list = h("ol", { class: "attention" });
  const more = h("p", { class: "muted" });
  const element = h("section", { class: "card", "aria-label": "Needs attention", hidden: true }, h("h2", {}, "Needs attention"), list, more);
  let known = null;
  let loaded = 0;
  let closed = false;

  async function look() {
    const flows = (store.flows ?? []).filter(isTroubled);
    const key = flows.map(signature).join();
    if (key === known && performance.now() - loaded < EVERY_MS) return;
    known = key;
    loaded = performance.now();
    const asked = flows.slice(0, FLOWS);
    const found = await Promise.all(asked.map((flow) => get(flowPath(flow.flow)).catch(() => null)));
    if (!closed) whenReleased(() => show(found.filter(Boolean)));
  }

  function show(flows) {
    if (selectedIn(element)) return;
    const rows = flows.flatMap((flow) => flow.troubled.filter(isUnasked(flow)).map((row) => [isBad(row.state), ofPartition(flow, row)]));
    const of = (bad) => rows.filter(([one]) => one === bad).map(([, element]) => element);
    const items = [...flows.filter((flow) => flow.life.state === "failed").map(ofFlow),
      ...flows.filter((flow) => flow.diverged_records).map(ofDivergence), ...of(true),
      ...flows.flatMap((flow) => flow.failing.map((job) => ofJob(flow, job))), ...of(false)];
    element.hidden = !items.length;
    put(list, items.slice(0, SHOWN));
    more.textContent = items.length > SHOWN ? `And ${items.length - SHOWN} more: the flows below have them all.` : "";
  }

  look();
  const off = on("flows", look);
  return {
    element,
    close() {
      closed = true;
      off();
    },
  };
}

/** Whoever paused a topic knows that its partitions wait. */
const isUnasked = (flow) => (row) => row.state !== "waiting" || !(row.topic in flow.paused_topics);

function item({ state, title, href, flow, since, next, reason, advice }) {
  return h("li", { class: kindOf(state) },
    h("div", { class: "attention-head" }, stateBadge(state), h("a", { href, "data-key": `attention:${href}` }, title),
      h("span", { class: "muted" }, flow ? `${flow} · ` : "", since, next ? [" · next try ", when(next)] : null)),
    h("p", { class: "reason" }, reason),
    advice ? h("p", { class: "advice" }, h("b", {}, "What to do: "), advice) : null);
}

const ofFlow = ({ flow, life }) => item({
  state: life.state, title: flowName(flow), href: linkTo(flow), since: lasting(life.since), next: life.next_try,
  reason: life.reason, advice: flowAdvice(life),
});

const ofDivergence = ({ flow, source, target, life, diverged_records: records }) => item({
  state: "failed", title: flowName(flow), href: linkTo(flow), since: ["failed over ", lasting(life.since)],
  reason: `${source} has ${count(records, "record")} that ${target} has not.`,
  advice: `Stop what writes to ${source}. heliograph failback asks what is to become of these records.`,
});

const ofPartition = ({ flow }, row) => item({
  state: row.state, title: `${row.topic}-${row.partition}`, href: linkTo(flow, "partitions", row.topic), flow: flowName(flow),
  since: lasting(row.since), next: row.next_try, reason: row.reason, advice: adviceFor(row),
});

const ofJob = ({ flow }, job) => item({
  state: "failed", title: job.description, href: linkTo(flow, "jobs"), since: ["ran ", when(job.last_run)], next: job.next_run, reason: job.error,
  advice: "Do what the message says. The job runs again by itself.",
});
