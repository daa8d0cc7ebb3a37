// Topics, partitions, groups, jobs and configuration: of one flow, or (null) of all.

import { adviceFor, isTrouble, meaningOf, STATES } from "./advice.js";
import { flowPath, get } from "./api.js";
import { commandButton } from "./commands.js";
import { empty, h, put } from "./dom.js";
import { amount, duration, when, whole, UNKNOWN } from "./format.js";
import { stateBadge } from "./icons.js";
import { flowNamed, on } from "./store.js";
import { Table } from "./table.js";

const NUMBER = "number";
const topicFilter = { label: "Topic", key: "topic", value: (text) => (text.includes("*") ? text : `*${text}*`) };
const flowColumn = (flow) => (flow === null ? [{ title: "Flow", cell: (row) => h("a", { href: `#/flow/${encodeURIComponent(row.flow)}` }, row.flow) }] : []);

/** Names and values beneath each other. */
export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function partitions(flow) {
  const chips = h("div", { class: "choice", role: "group", "aria-label": "State" });
  let chosen = "";
  const table = new Table({
    path: flowPath(flow, "/partitions"), name: "partitions", noun: "partition", sort: "-state", filters: [topicFilter], bar: chips,
    key: (p) => `${p.topic}-${p.partition}`,
    nothing: () => (chosen ? [`No partition is ${chosen.replace(",", " or ")}`, ""] : ["No partition fits", "Nothing is mirrored by this flow, or no topic has this name."]),
    columns: [
      { title: "Partition", sort: "name", cell: (p) => `${p.topic}-${p.partition}` },
      { title: "State", sort: "state", down: true, cell: (p) => stateBadge(p.state) },
      { title: "Since", sort: "since", cell: (p) => when(p.since) },
      { title: "Lag", sort: "lag", down: true, class: NUMBER, cell: (p) => whole(p.lag_records) },
      { title: "Age", sort: "seconds", down: true, class: NUMBER, cell: (p) => (p.lag_seconds === null ? UNKNOWN : duration(p.lag_seconds)) },
      { title: "Next try", cell: (p) => when(p.next_try) },
    ],
    always: (p) => (isTrouble(p.state) ? [
      h("p", { class: "reason" }, p.reason || meaningOf(p.state), p.code ? h("code", {}, p.code) : null),
      adviceFor(p) ? h("p", { class: "advice" }, h("b", {}, "What to do: "), adviceFor(p)) : null,
    ] : null),
    detail: (p) => [
      facts(["Target topic", p.target_topic], ["Source end", whole(p.source_end)], ["Position", whole(p.position)],
        ["Target end", whole(p.target_end)], ["Offsets", p.shift === null ? "nothing mirrored yet" : p.shift === 0 ? "identical" : `target = source ${p.shift > 0 ? "+" : "−"} ${whole(Math.abs(p.shift))}`]),
      h("p", { class: "muted" }, meaningOf(p.state)),
    ],
  });
  const draw = () => {
    const states = flowNamed(flow)?.states ?? {};
    const total = flowNamed(flow)?.partitions ?? 0;
    const options = [["", `All ${whole(total)}`], ...STATES.filter((state) => states[state] || state === chosen).map((state) => [state, `${state} ${whole(states[state] ?? 0)}`])];
    put(chips, options.map(([value, text]) => h("button", {
      type: "button", "aria-pressed": String(value === chosen), "data-key": `state:${value}`, "data-state": value,
      onclick: () => {
        chosen = value;
        table.set({ state: value });
        draw();
      },
    }, text)));
  };
  draw();
  const off = on("flows", draw);
  return { element: table.element, close: () => { off(); table.close(); } };
}

export function topics(flow) {
  const told = h("p", { class: "told", role: "status" });
  const tell = (text, bad) => {
    told.textContent = text;
    told.classList.toggle("problem", bad);
  };
  const table = new Table({
    path: "topics", name: "topics", noun: "topic", fixed: { flow }, sort: "-lag", filters: [topicFilter], bar: told,
    key: (t) => `${t.flow} ${t.topic}`, nothing: ["No topic fits", ""],
    columns: [
      { title: "Topic", sort: "name", cell: (t) => t.topic }, ...flowColumn(flow),
      { title: "Target topic", cell: (t) => t.target_topic },
      { title: "Partitions", class: NUMBER, cell: (t) => whole(t.partitions) },
      { title: "In trouble", sort: "troubled", down: true, class: NUMBER, cell: (t) => (t.troubled ? h("b", { class: "bad-text" }, whole(t.troubled)) : "0") },
      { title: "Lag", sort: "lag", down: true, class: NUMBER, cell: (t) => whole(t.lag_records) },
      { title: "Age", sort: "seconds", down: true, class: NUMBER, cell: (t) => duration(t.lag_seconds) },
    ],
    detail: (t) => [
      h("p", { class: "muted" }, t.troubled ? "The flow's partitions say why, and what to do." : "No partition of it is in trouble."),
      h("div", { class: "buttons" }, commandButton("pause", { flow: t.flow, topic: t.topic }, tell), commandButton("resume", { flow: t.flow, topic: t.topic }, tell)),
    ],
  });
  return table;
}

function readiness(group) {
  if (group.ready === true) return stateBadge("ready");
  return h("span", { class: `state ${group.ready === false ? "warn" : "quiet"}` }, group.ready === false ? "not yet" : "not known");
}

export function groups(flow) {
  return new Table({
    path: "groups", name: "groups", noun: "group", fixed: { flow }, sort: "name",
    filters: [{ label: "Group", key: "group", value: (text) => text }],
    key: (g) => `${g.flow} ${g.group}`, nothing: ["No group fits", "Groups appear when checkpoints have looked at them."],
    columns: [
      { title: "Group", sort: "name", cell: (g) => g.group }, ...flowColumn(flow),
      { title: "Could move over now", sort: "ready", cell: readiness },
      { title: "Why", cell: (g) => h("span", { class: "wrap" }, g.why || "") },
      { title: "Partitions", class: NUMBER, cell: (g) => whole(g.partitions) },
      { title: "Not read", sort: "lag", down: true, class: NUMBER, cell: (g) => amount(g.lag) },
    ],
    detail: (g) => {
      const holder = h("div", { class: "inner" }, h("p", { class: "muted" }, "Asking for its offsets …"));
      get("group", { flow: g.flow, group: g.group }).then(
        (found) => put(holder, groupDetail(found)),
        (error) => put(holder, h("p", { class: "problem" }, error.message)),
      );
      return holder;
    },
  });
}

function groupDetail(group) {
  const head = ["Partition", "Committed on source", "Source end", "Translated", "Committed on target", "Target end"];
  const said = Object.entries(group.said ?? {}).map(([job, text]) => h("p", { class: "muted" }, `${job}: ${text}`));
  if (!group.partitions.length) return [said, empty("No offsets are known")];
  return [said, h("table", {}, h("thead", {}, h("tr", {}, head.map((text, n) => h("th", { scope: "col", class: n ? NUMBER : null }, text)))),
    h("tbody", {}, group.partitions.map((p) => h("tr", {}, h("th", { scope: "row", "data-label": head[0] }, `${p.topic}-${p.partition}`),
      [p.source_committed, p.source_end, p.translated, p.target_committed, p.target_end].map((value, n) => h("td", { class: NUMBER, "data-label": head[n + 1] }, whole(value)))))))];
}

export function jobs(flow) {
  return new Table({
    path: "jobs", name: "jobs", noun: "job", fixed: { flow }, sort: "-error", key: (j) => `${j.flow} ${j.part} ${j.description}`,
    nothing: ["No job runs", "Jobs start with their flow."],
    columns: [
      { title: "Job", sort: "name", cell: (j) => j.description }, ...flowColumn(flow),
      { title: "Part", cell: (j) => j.part },
      { title: "Result", sort: "error", down: true, cell: (j) => (j.error ? stateBadge("failed") : j.last_run ? h("span", { class: "state ok" }, "worked") : h("span", { class: "state quiet" }, "not run yet")) },
      { title: "Last run", sort: "last_run", down: true, cell: (j) => when(j.last_run) },
      { title: "Next run", cell: (j) => when(j.next_run) },
      { title: "Took", class: NUMBER, cell: (j) => (j.last_run ? duration(j.took_seconds) : UNKNOWN) },
    ],
    always: (j) => (j.error ? h("p", { class: "reason" }, j.error) : null),
  });
}

export function configuration(flow) {
  const holder = h("div", { class: "config" });
  let found = [];
  let text = "";
  let changedOnly = true;
  const search = h("input", { type: "search", autocomplete: "off", spellcheck: "false", oninput: (event) => { text = event.target.value.trim().toLowerCase(); draw(); } });
  const box = h("input", { type: "checkbox", checked: true, onchange: (event) => { changedOnly = event.target.checked; draw(); } });
  const draw = () => put(holder, found.map((one) => {
    const rows = one.keys.filter((key) => (!changedOnly || !key.is_default) && (!text || `${key.key} ${key.value} ${key.origin}`.toLowerCase().includes(text)));
    return [flow === null ? h("h3", {}, one.flow) : null, rows.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Key", "Value", "Origin"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((key) => h("tr", {}, h("th", { scope: "row", "data-label": "Key" }, h("code", {}, key.key)), h("td", { "data-label": "Value", class: "wrap" }, h("code", {}, key.value === null ? UNKNOWN : String(key.value))), h("td", { "data-label": "Origin", class: "wrap muted" }, key.origin))))) : empty("No key fits")];
  }));
  get("config", { flow }).then((answer) => { found = answer.flows; draw(); }, (error) => put(holder, empty("This could not be loaded", error.message)));
  return {
    element: h("div", { class: "table" }, h("div", { class: "table-bar" }, h("label", { class: "field" }, h("span", {}, "Search"), search), h("label", { class: "check" }, box, "Only what differs from the default")), holder),
    close() {},
  };
}
