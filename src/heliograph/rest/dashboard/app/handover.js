// The last change of direction of a flow, step by step, and what failovers and drills took and lost.

import { empty, h } from "./dom.js";
import { count, duration, when, whole, UNKNOWN } from "./format.js";
import { sign } from "./icons.js";
import { facts, NUMBER } from "./tables.js";

const STEPS = {
  announce: "Write down that it begins",
  drain: "Copy what can still be reached",
  stop: "Stop all mirrors of the flow",
  cut: "Note where the logs were cut",
  groups: "Move consumer groups",
  unfence: "Let clients write to the target",
  fence: "Deny writes to the source",
  quiet: "Prove that the source stands still",
  consumers: "Let consumers read to the end",
  prove: "Prove that both sides end alike",
  start: "Start the other direction",
  copies: "Wait for a mirror that copies it",
  settle: "Settle what only the old source has",
  turn: "Begin where the logs were cut",
  mirror: "Mirror back what was written since",
};
const SIGNS = { done: ["ok", "ok"], begun: ["busy", "busy"], note: ["busy", "busy"], failed: ["failed", "bad"], todo: ["waiting", "quiet"] };
const WORDS = { done: "through", begun: "under way", note: "under way", failed: "failed", todo: "to do" };

/** Whether a handover was begun and is not through. */
export const isOpen = ({ handover, run }) => Boolean((handover && !handover.ended) || (run && !run.ended));

/** What this process did or does of it; nothing if somebody else has begun another one since. */
function own({ handover, run }) {
  if (!run || (run.error && run.error.refused)) return null;
  return !run.ended || !handover || Date.parse(handover.began) <= Date.parse(run.ended) ? run : null;
}

/** The last handover, wherever it was ordered; `known` is the answer of the mirror. */
export function lastHandover(known) {
  const { handover, unread } = known;
  const run = own(known);
  const problem = unread ? h("p", { class: "reason" }, `What was done is not known now: ${unread}`) : null;
  if (!handover && !run) return problem ?? null;
  const kind = handover?.kind ?? run.kind;
  const [name, tone, text] = standing(handover, run);
  return [
    problem,
    h("div", { class: "card-head" }, h("h2", {}, `The last ${kind}`), h("span", { class: `state ${tone}` }, sign(name, tone), text)),
    facts(["By", handover?.by ?? run.by], ["Began", when(handover?.began ?? run.began)],
      ...(handover?.ended ? [["Ended", when(handover.ended)], ["Took", took(handover, run)]] : []),
      ...(handover?.topics ? [["Topics", whole(handover.topics.length)]] : [])),
    h("ol", { class: "steps" }, stepsOf(known, run).map(line)),
    run?.error ? h("p", { class: "problem", role: "alert" }, `${run.error.message}${run.error.hint ? `. What to do: ${run.error.hint}` : ""}`) : null,
    handover && !handover.ended && !run ? h("p", { class: "muted" }, "It was begun elsewhere. If nobody carries it on, the same command goes on from here, and so does an admin who fails over on this page.") : null,
    run?.report ? result(run.report) : null,
  ];
}

function standing(handover, run) {
  if (run && !run.ended) return ["busy", "busy", "under way"];
  if (run?.error) return ["failed", "bad", "broken off"];
  if (handover?.aborted) return ["stopped", "quiet", "given up"];
  if (handover?.ended) return ["ok", "ok", "through"];
  return ["warn", "warn", "not through"];
}

function took({ began, ended }, run) {
  return duration(run?.report ? run.report.rto_seconds : Math.max(0, (Date.parse(ended) - Date.parse(began)) / 1000));
}

/** Each step: its state, what was last told of it, and after how many seconds. */
function stepsOf({ handover, steps }, run) {
  const through = handover?.steps ?? [];
  const known = handover && handover.kind !== "failover" ? through : steps;
  return known.map((step) => {
    const told = (run?.progress ?? []).filter((one) => one.step === step).at(-1);
    const state = through.includes(step) ? "done" : told?.phase ?? "todo";
    return { step, state, text: told?.text ?? "", seconds: told?.seconds ?? null };
  });
}

function line({ step, state, text, seconds }) {
  const [name, tone] = SIGNS[state];
  return h("li", { class: state === "todo" ? "todo" : null, "data-step": step, "data-state": state },
    h("span", { class: `state ${tone}` }, sign(name, tone), h("span", { class: "word" }, WORDS[state])),
    h("span", { class: "what" }, h("b", {}, STEPS[step] ?? step), text ? h("span", { class: "muted" }, text) : null),
    h("span", { class: "at muted" }, seconds === null ? "" : `after ${duration(seconds)}`));
}

/** What it did, of a failover of this process. */
function result(report) {
  const left = report.groups.filter((group) => !group.moved);
  const ahead = report.groups.filter((group) => group.kept_ahead);
  const places = (group) => Object.entries(group.kept).map(([partition, { committed, translated }]) => `${partition} at ${committed}, ${committed - translated} ahead`);
  const text = report.rpo.exact || report.rpo.records === null ? null : h("p", { class: "muted" }, "What the source took after it last answered is not known.");
  return [
    facts(["Recovery took", duration(report.rto_seconds)], ["Lost", report.rpo.records === null ? "not known" : count(report.rpo.records, "record")],
      ["Partitions", whole(report.partitions.length)], ["Groups moved", whole(report.groups.length - left.length)], ["Groups not moved", whole(left.length)]),
    text,
    left.length ? h("div", { class: "against" }, h("h3", {}, "Groups that were not moved"), left.map((group) => h("p", {}, h("b", {}, group.group), `: ${group.reason}`))) : null,
    ahead.length ? h("div", {}, h("h3", {}, "Groups that are ahead, and were kept there"), ahead.map((group) => h("p", {}, h("b", {}, group.group), `: ${places(group).join(", ")}`))) : null,
  ];
}

/** Failovers, switchovers and drills: what they took and lost. */
export function rehearsals(rows) {
  const title = h("h2", {}, "Rehearsals");
  if (!rows.length) return [title, empty("Never rehearsed", "A failover, a switchover or heliograph drill shows how long recovery takes.")];
  const head = [["When", null], ["What", null], ["Took", NUMBER], ["Lost", NUMBER], ["Groups", NUMBER], ["Result", null], ["By", null]];
  const ended = (row) => (row.ok ? h("span", { class: "state ok" }, sign("ok", "ok"), "as it should") : h("span", { class: "state bad" }, sign("failed", "bad"), row.text || "failed"));
  const cells = (row) => [when(row.at), row.kind, duration(row.rto_seconds), row.rpo_records === null ? UNKNOWN : count(row.rpo_records, "record"), whole(row.groups), ended(row), row.by];
  return [title, h("div", { class: "table" }, h("table", {}, h("thead", {}, h("tr", {}, head.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, cells(row).map((cell, number) =>
      h(number ? "td" : "th", { scope: number ? null : "row", class: head[number][1], "data-label": head[number][0] }, cell)))))))];
}
