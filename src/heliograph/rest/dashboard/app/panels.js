// Groups, jobs and configuration: of one flow, or (null) of all.

import { get } from "./api.js";
import { empty, h, put } from "./dom.js";
import { amount, count, duration, flowName, when, whole, UNKNOWN } from "./format.js";
import { because, sign, stateBadge } from "./icons.js";
import { Table } from "./table.js";
import { flowColumn, NUMBER } from "./tables.js";

/** Of a group; nobody reads more. */
const MOST_OFFSETS = 500;

function readiness({ ready }) {
  if (ready === true) return h("span", { class: "state ok" }, sign("ok", "ok"), "yes");
  if (ready === false) return h("span", { class: "state warn" }, sign("warn", "warn"), "not now");
  return h("span", { class: "state quiet" }, sign("waiting", "quiet"), "not known");
}

export function groups(flow) {
  return new Table({
    path: "groups", name: "groups", noun: "group", fixed: { flow }, sort: "ready",
    filters: [{ label: "Group", key: "group", value: (text) => text }],
    key: (row) => `${row.flow} ${row.group}`, nothing: ["No group", "Groups appear when checkpoints have looked at them."],
    columns: [
      { title: "Group", sort: "name", cell: (row) => row.group }, ...flowColumn(flow),
      { title: "Could move over now", sort: "ready", cell: readiness },
      { title: "Why not", cell: (row) => row.why || "" },
      { title: "Partitions", class: NUMBER, cell: (row) => whole(row.partitions) },
      { title: "Not read yet", sort: "lag", down: true, class: NUMBER, cell: (row) => amount(row.lag) },
    ],
    detail: (row) => {
      const holder = h("div", { class: "inner" }, h("p", { class: "muted" }, "Asking for its offsets …"));
      get("group", { flow: row.flow, group: row.group }).then(
        (found) => put(holder, groupDetail(found)),
        (error) => put(holder, h("p", { class: "problem" }, error.message)),
      );
      return holder;
    },
  });
}

/** A group on both sides. */
function groupDetail(group) {
  const head = ["Partition", "Source: committed", "Source: end", "Translated", "Target: committed", "Target: end"];
  const said = Object.entries(group.said ?? {}).map(([job, text]) => h("p", { class: "muted" }, `${job}: ${text}`));
  if (!group.partitions.length) return [said, empty("No offsets are known")];
  const row = (p) => h("tr", {}, h("th", { scope: "row", "data-label": head[0] }, `${p.topic}-${p.partition}`),
    [p.source_committed, p.source_end, p.translated, p.target_committed, p.target_end].map((value, number) =>
      h("td", { class: NUMBER, "data-label": head[number + 1] }, whole(value))));
  return [said, h("table", { class: "nested" },
    h("thead", {}, h("tr", {}, head.map((text, number) => h("th", { scope: "col", class: number ? NUMBER : null }, text)))),
    h("tbody", {}, group.partitions.slice(0, MOST_OFFSETS).map(row))),
    group.partitions.length > MOST_OFFSETS ? h("p", { class: "muted" }, `And ${count(group.partitions.length - MOST_OFFSETS, "partition")} more: the command heliograph groups has them all.`) : null];
}

function result(job) {
  if (job.error) return stateBadge("failed");
  return job.last_run ? h("span", { class: "state ok" }, sign("ok", "ok"), "worked") : h("span", { class: "state quiet" }, "not run yet");
}

export function jobs(flow) {
  return new Table({
    path: "jobs", name: "jobs", noun: "job", dense: true, fixed: { flow }, sort: "-error", key: (row) => `${row.flow} ${row.part} ${row.description}`,
    nothing: ["No job runs", "Jobs start with their flow."],
    columns: [
      { title: "Job", sort: "name", cell: (row) => row.description }, ...flowColumn(flow),
      { title: "Part", cell: (row) => row.part },
      { title: "Result", sort: "error", down: true, cell: result },
      { title: "Last run", sort: "last_run", down: true, cell: (row) => when(row.last_run) },
      { title: "Next run", cell: (row) => when(row.next_run) },
      { title: "Took", class: NUMBER, cell: (row) => (row.last_run ? duration(row.took_seconds) : UNKNOWN) },
    ],
    always: (row) => (row.error ? because("failed", h("p", { class: "reason" }, row.error)) : null),
  });
}

/** Keys, their values, and where each comes from. */
export function configuration(flow) {
  const holder = h("div", { class: "config" }, h("p", { class: "muted" }, "Asking for it …"));
  let found = [];
  let text = "";
  let changedOnly = true;
  const draw = () => put(holder, found.map((one) => [
    flow === null ? h("h3", {}, flowName(one.flow)) : null,
    keys(one.keys.filter((key) => (!changedOnly || !key.is_default) && fits(key, text))),
  ]));
  const search = h("input", {
    type: "search", autocomplete: "off", spellcheck: "false", name: "key",
    oninput: (event) => {
      text = event.target.value.trim().toLowerCase();
      draw();
    },
  });
  const box = h("input", {
    type: "checkbox", checked: true,
    onchange: (event) => {
      changedOnly = event.target.checked;
      draw();
    },
  });
  get("config", { flow }).then(
    (answer) => {
      found = answer.flows;
      draw();
    },
    (error) => put(holder, empty("This could not be loaded", error.message)),
  );
  const bar = h("div", { class: "table-bar" }, h("label", { class: "field" }, h("span", {}, "Search"), search),
    h("label", { class: "check" }, box, "Only what is not the default"));
  return { element: h("div", { class: "table" }, bar, holder), close() {} };
}

const fits = (key, text) => !text || `${key.key} ${key.value} ${key.origin}`.toLowerCase().includes(text);

function keys(rows) {
  if (!rows.length) return empty("No key fits");
  const head = ["Key", "Value", "Where it comes from"];
  const row = (key) => h("tr", {}, h("th", { scope: "row", "data-label": head[0] }, h("code", {}, key.key)),
    h("td", { "data-label": head[1] }, h("code", {}, key.value === null ? UNKNOWN : String(key.value))),
    h("td", { "data-label": "From", class: "muted" }, key.origin));
  return h("table", { class: "keys" }, h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows.map(row)));
}
