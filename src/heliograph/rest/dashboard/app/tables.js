// Partitions of a flow, and topics of one flow or (null) of all.

import { adviceFor, isTrouble, meaningOf, STATES } from "./advice.js";
import { flowPath } from "./api.js";
import { commandButton } from "./commands.js";
import { h, put } from "./dom.js";
import { duration, flowName, when, whole, UNKNOWN } from "./format.js";
import { because, stateBadge } from "./icons.js";
import { linkTo } from "./links.js";
import { flowNamed } from "./store.js";
import { Table } from "./table.js";

export const NUMBER = "number";
const topicFilter = { label: "Topic", key: "topic", value: (text) => (text.includes("*") ? text : `*${text}*`) };

/** The column that names the flow, where there are several. */
export const flowColumn = (flow) =>
  flow === null ? [{ title: "Flow", cell: (row) => h("a", { class: "flow-name", href: linkTo(row.flow), title: row.flow }, flowName(row.flow)) }] : [];

/** Names and values beneath each other. */
export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function offsets(shift) {
  if (shift === null) return "nothing mirrored yet";
  return shift === 0 ? "the same on both sides" : `target = source ${shift > 0 ? "+" : "−"} ${whole(Math.abs(shift))}`;
}

/** Why it is in this state, and what to do. `name`: the part of it that is spoken of. */
function why(row, name = "") {
  if (!isTrouble(row.state)) return null;
  const advice = adviceFor(row);
  return because(row.state,
    h("p", { class: "reason" }, name ? h("b", {}, `${name}: `) : null, row.reason || meaningOf(row.state), row.code ? [" ", h("code", {}, row.code)] : null),
    advice ? h("p", { class: "advice" }, h("b", {}, "What to do: "), advice) : null);
}

/** `topic`: what is filtered by at first. */
export function partitions(flow, topic = "") {
  const chips = h("div", { class: "choice", role: "group", "aria-label": "State" });
  let chosen = "";
  let counts = {};
  const draw = () => {
    const all = Object.values(counts).reduce((sum, number) => sum + number, 0);
    const shown = STATES.filter((state) => counts[state] || state === chosen);
    const options = [["", `all ${whole(all)}`], ...shown.map((state) => [state, `${state} ${whole(counts[state] ?? 0)}`])];
    const pick = (state) => () => {
      chosen = state;
      draw();
      table.set({ state });
    };
    put(chips, options.map(([value, text]) => h("button", {
      type: "button", "aria-pressed": String(value === chosen), "data-key": `state:${value}`, "data-state": value, onclick: pick(value),
    }, text)));
  };
  const table = new Table({
    path: flowPath(flow, "/partitions"), name: "partitions", dense: true, noun: "partition", sort: "-state", bar: chips,
    filters: [{ ...topicFilter, first: topic }],
    loaded: ({ states }) => {
      counts = states;
      draw();
    },
    key: (row) => `${row.topic}-${row.partition}`,
    nothing: () => (chosen ? [`No partition is ${chosen}`, ""] : ["No partition fits", "Nothing is mirrored by this flow, or no topic has this name."]),
    columns: [
      { title: "Partition", sort: "name", cell: (row) => `${row.topic}-${row.partition}` },
      { title: "State", sort: "state", down: true, cell: (row) => stateBadge(row.state) },
      { title: "Since", sort: "since", cell: (row) => when(row.since) },
      { title: "Lag", sort: "lag", down: true, class: NUMBER, cell: (row) => whole(row.lag_records) },
      { title: "Behind", sort: "seconds", down: true, class: NUMBER, cell: (row) => duration(row.lag_seconds) },
      { title: "Next try", class: NUMBER, cell: (row) => (row.next_try ? when(row.next_try) : "") },
    ],
    // Whoever paused its topic knows what to do.
    always: (row) => why(row.state === "waiting" && row.topic in (flowNamed(flow)?.paused_topics ?? {}) ? { ...row, state: "paused" } : row),
    detail: (row) => [
      h("p", { class: "muted" }, meaningOf(row.state)),
      facts(["Target topic", row.target_topic], ["Source end", whole(row.source_end)], ["Position", whole(row.position)],
        ["Target end", whole(row.target_end)], ["Offsets", offsets(row.shift)]),
    ],
  });
  return table;
}

export function topics(flow) {
  const told = h("p", { class: "told", role: "status" });
  const tell = (text, bad) => {
    told.textContent = text;
    told.classList.toggle("problem", bad);
    table.expire();
  };
  const table = new Table({
    path: "topics", name: "topics", dense: true, noun: "topic", fixed: { flow }, sort: "-state", filters: [topicFilter], bar: told,
    key: (row) => `${row.flow} ${row.topic}`, nothing: ["No topic", "Nothing is mirrored yet, or no topic has this name."],
    columns: [
      { title: "Topic", sort: "name", cell: (row) => row.topic }, ...flowColumn(flow),
      { title: "State", sort: "state", down: true, cell: (row) => (row.state ? stateBadge(row.state) : UNKNOWN) },
      { title: "Since", cell: (row) => when(row.since) },
      { title: "Partitions", class: NUMBER, cell: (row) => whole(row.partitions) },
      { title: "In trouble", sort: "troubled", down: true, class: NUMBER, cell: (row) => whole(row.troubled) },
      { title: "Lag", sort: "lag", down: true, class: NUMBER, cell: (row) => whole(row.lag_records) },
      { title: "Behind", sort: "seconds", down: true, class: NUMBER, cell: (row) => duration(row.lag_seconds) },
      { title: "Next try", class: NUMBER, cell: (row) => (row.next_try ? when(row.next_try) : "") },
    ],
    always: (row) => why(row, row.partition === null ? "" : `${row.topic}-${row.partition}`),
    detail: (row) => {
      const also = row.paused && row.state !== "paused" ? h("p", { class: "reason" }, `The topic was paused: ${row.paused}`) : null;
      return h("div", { class: "inner" }, also, facts(["Target topic", row.target_topic]), h("div", { class: "buttons" },
        h("a", { href: linkTo(row.flow, "partitions", row.topic) }, "Its partitions"),
        commandButton(row.paused ? "resume" : "pause", { flow: row.flow, topic: row.topic }, tell)));
    },
  });
  return table;
}
