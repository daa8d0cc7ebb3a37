// The bad day of one flow: the plan of a failover, doing it, how far it is, and what was rehearsed.

import { Failure, flowPath, get, post } from "./api.js";
import { open } from "./commands.js";
import { empty, h, put, selectedIn, whenReleased } from "./dom.js";
import { count, duration, flowName, now, when, whole } from "./format.js";
import { isOpen, lastHandover, rehearsals } from "./handover.js";
import { sign } from "./icons.js";
import { admission, flowNamed, on, store } from "./store.js";
import { facts, NUMBER } from "./tables.js";

/** Of groups and partitions; the command `heliograph failover --dry-run -o json` has all. */
const SHOWN = 12;
/** What was done is asked for again so often while something is under way, and else. */
const UNDER_WAY_MS = 2000;
const AT_REST_MS = 15000;
/** What an admin may overrule. */
const OVERRULED = ["failover.source-healthy", "failover.both-directions", "failover.faulted"];

/** The tab of a flow. */
export function failover(flow) {
  const told = h("p", { class: "told", role: "status" });
  const done = h("div", { class: "handover" });
  const plan = h("div", { class: "handover" });
  const past = h("div", { class: "handover" });
  const element = h("div", { class: "handovers" }, told, done, plan, past);
  let known = null;
  let found = null;
  let problem = "";
  let looking = false;
  let closed = false;
  let asked = 0;
  const drawn = {};
  const maySee = store.me?.role !== "viewer";

  const tell = (text) => {
    told.textContent = text;
  };

  /** Draw a part only if it has changed: no click and no selection gets lost. */
  function part(holder, name, value, draw) {
    const key = JSON.stringify(value);
    if (drawn[name] === key || selectedIn(holder)) return;
    drawn[name] = key;
    put(holder, draw());
  }

  function draw() {
    if (closed) return;
    if (known) {
      part(done, "done", [known.handover, known.run, known.unread], () => lastHandover(known));
      part(past, "past", known.rehearsals, () => rehearsals(known.rehearsals));
    }
    part(plan, "plan", [found, problem, looking, known && isOpen(known), store.me], () => planOf());
  }

  async function read() {
    asked = performance.now();
    try {
      known = await get(flowPath(flow, "/handover"));
    } catch (error) {
      if (!closed && !known) put(done, empty(error.status === 501 ? "Not offered here" : "This could not be loaded", error.message));
      if (error.status === 501) plan.hidden = true;
      return;
    }
    whenReleased(draw);
  }

  async function look() {
    if (!maySee || looking) return;
    looking = true;
    draw();
    try {
      found = { at: new Date(now()).toISOString(), ...(await get(flowPath(flow, "/failover"))) };
      problem = "";
    } catch (error) {
      found = null;
      problem = error.message;
    }
    looking = false;
    whenReleased(draw);
  }

  function planOf() {
    const again = h("button", { type: "button", "data-key": "look", disabled: looking, onclick: look }, looking ? "Looking …" : found || problem ? "Look again" : "Look");
    const head = (buttons) => h("div", { class: "card-head" }, h("h2", {}, "Plan"), h("div", { class: "buttons" }, buttons));
    if (!maySee) return [head(null), h("p", { class: "muted" }, "Your role is viewer. An operator sees what a failover would do.")];
    if (problem) return [head(again), h("p", { class: "problem", role: "alert" }, problem)];
    if (!found) return [head(again), h("p", { class: "muted" }, "Looking at both clusters. This takes some seconds if one of them does not answer.")];
    return [head([again, executeButton()]), whyNot(), verdict(found), planFacts(found), notesOf(found), groupsOf(found), recordsAtRisk(found), topicsOf(found)];
  }

  const busy = () => known?.run && !known.run.ended;
  const final = () => found.refusals.filter((refusal) => !OVERRULED.includes(refusal.code));

  function whyNot() {
    const { may, why } = admission();
    return may ? null : h("p", { class: "muted" }, why);
  }

  function executeButton() {
    if (!admission().may) return null;
    return h("button", {
      type: "button", class: "danger", "data-key": "failover", "data-command": "failover", disabled: Boolean(busy() || final().length),
      onclick: (event) => confirm(event.currentTarget),
    }, `${wordFor(found)} …`);
  }

  function confirm(opener) {
    const target = targetOf(flow);
    const against = found.refusals;
    const wrong = h("p", { class: "problem", role: "alert" });
    const wait = h("p", { class: "muted", role: "status" });
    const name = h("input", { id: "confirm-name", name: "flow", type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
    const force = against.length ? h("input", { type: "checkbox", id: "confirm-force" }) : null;
    const yes = h("button", { type: "submit", class: "danger", id: "confirm-yes", disabled: true }, "Fail over");
    const check = () => {
      yes.disabled = name.value.trim() !== flow || Boolean(force && !force.checked);
    };
    const dialog = open(opener, h("form", {
      oninput: check,
      onsubmit: async (event) => {
        event.preventDefault();
        yes.disabled = true;
        wrong.textContent = "";
        wait.textContent = "Looking at both clusters. Then it begins.";
        try {
          await post(flowPath(flow, "/failover"), {}, { confirm: name.value.trim(), force: Boolean(force?.checked) });
          dialog.close();
          tell(`The failover of ${flowName(flow)} was begun.`);
        } catch (error) {
          wrong.textContent = error instanceof Failure ? error.message : String(error);
          check();
        }
        wait.textContent = "";
        read();
      },
    },
    h("h2", { id: "confirm-title" }, `${wordFor(found)}?`),
    h("p", { id: "confirm-text" }, `All mirrors of ${flowName(flow)} are stopped, also those that come back later. Consumer groups are moved to ${target}; clients can go on there then.`),
    h("p", {}, lost(found)),
    against.length ? h("div", { class: "against" }, against.map((refusal) => h("p", {}, refusal.message))) : null,
    force ? h("label", { class: "check" }, force, "Do it all the same") : null,
    h("label", { class: "typed" }, h("span", {}, "Type the name of the flow: ", h("code", {}, flow)), name),
    wrong, wait,
    h("div", { class: "dialog-buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), yes)));
    name.focus();
  }

  const timer = setInterval(() => {
    if (document.hidden || !element.isConnected) return;
    const every = known && (busy() || isOpen(known)) ? UNDER_WAY_MS : AT_REST_MS;
    if (performance.now() - asked >= every) read();
  }, 500);
  const off = on("events", (event) => {
    if (event?.kind !== "handover" || event.flow !== flow) return;
    read();
    if (event.step !== "end") return;
    tell("");
    look();
  });
  draw();
  look();
  return {
    element,
    ready: read(),
    close() {
      closed = true;
      clearInterval(timer);
      off();
    },
  };
}

const targetOf = (flow) => flowNamed(flow)?.target ?? flow.split("->")[1];

/** What the button does now. */
function wordFor({ before, flow }) {
  if (!before) return `Fail over to ${targetOf(flow)}`;
  return before.ended ? "Do what the failover left" : `Go on with the failover to ${targetOf(flow)}`;
}

/** What only the source has. */
function lost({ at_risk: risk, flow }) {
  const [source] = flow.split("->");
  if (risk.records === null) return [h("b", {}, "What would be lost is not known."), ` No mirror has noted where ${source} ended.`];
  const records = h("b", {}, risk.records ? `${count(risk.records, "record")} would be lost` : "No record would be lost");
  const unknown = risk.unknown_partitions ? `, and what of ${count(risk.unknown_partitions, "partition")} is not known` : "";
  return risk.exact ? [records, unknown, `: ${source} itself says so.`] : [records, unknown, `, as ${source} was when it last answered, `, when(risk.as_of), ". What it took after that is not known."];
}

/** Whether anything speaks against it, and what. */
function verdict({ refusals, flow }) {
  if (!refusals.length) return h("p", { class: "verdict ok" }, sign("ok", "ok"), h("span", {}, `Nothing speaks against a failover to ${targetOf(flow)}.`));
  return h("div", { class: "against" }, h("h3", {}, "What speaks against it"), refusals.map((refusal) => [
    h("p", {}, refusal.message, h("code", {}, refusal.code)),
    refusal.hint ? h("p", { class: "advice" }, h("b", {}, "What to do: "), refusal.hint) : null,
  ]));
}

function planFacts(plan) {
  const { source, at_risk: risk } = plan;
  const movable = plan.groups.filter((group) => !group.reason).length;
  const [name] = plan.flow.split("->");
  const answers = !source.answers ? `does not answer` : source.silent_partitions ? `silent for ${count(source.silent_partitions, "partition")}` : "answers for all partitions";
  return [
    facts([name, answers], ["Records at risk", whole(risk.records)],
      ...(risk.exact ? [] : [["The oldest waits", duration(risk.seconds)]]), ["Topics", whole(plan.topics.length)], ["Partitions", whole(plan.partitions)],
      ["Groups to be moved", whole(movable)], ["Groups that stay", whole(plan.groups.length - movable)], ["Looked at", when(plan.at)]),
    source.why_not ? h("p", { class: "reason" }, `${name}: ${source.why_not}`) : null,
    h("p", {}, lost(plan)),
  ];
}

/** What to know besides, and what could not be mirrored. */
function notesOf({ notes, faulted }) {
  const failed = Object.entries(faulted).map(([partition, why]) => `${partition} could not be mirrored: ${why}`);
  const all = [...failed, ...notes];
  if (!all.length) return null;
  const more = all.length > SHOWN ? h("li", {}, `And ${all.length - SHOWN} more: heliograph failover --dry-run -o json has all.`) : null;
  return [h("h3", {}, "Worth knowing"), h("ul", {}, all.slice(0, SHOWN).map((text) => h("li", {}, text)), more)];
}

/** A table of a few rows; `more` is how many there are beyond these. */
function small(title, head, rows, more, what) {
  return h("div", { class: "table" }, h("h3", {}, title),
    h("table", { class: "small" }, h("thead", {}, h("tr", {}, head.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, number) =>
        h(number ? "td" : "th", { scope: number ? null : "row", class: head[number][1], "data-label": head[number][0] }, cell)))))),
    more > 0 ? h("p", { class: "muted" }, `And ${count(more, what)} more: heliograph failover --dry-run -o json has all.`) : null);
}

function groupsOf({ groups }) {
  if (!groups.length) return h("p", { class: "muted" }, "No consumer group would be moved: none has read what is mirrored.");
  // Those that need somebody first.
  const sorted = [...groups].sort((a, b) => Number(!a.reason) - Number(!b.reason) || a.group.localeCompare(b.group));
  const may = (group) => (group.reason ? h("span", { class: "state warn" }, sign("warn", "warn"), "no") : h("span", { class: "state ok" }, sign("ok", "ok"), "yes"));
  const unset = (group) => Object.keys(group.unset).length;
  const why = (group) => group.reason || (unset(group) ? `${count(unset(group), "partition")} without an offset: auto.offset.reset of the client decides` : "");
  return small("Consumer groups", [["Group", null], ["Can be moved", null], ["Skips", NUMBER], ["Repeats", NUMBER], ["Why not, or what to know", null]],
    sorted.slice(0, SHOWN).map((group) => [group.group, may(group), whole(group.skips), whole(group.repeats), why(group)]), sorted.length - SHOWN, "group");
}

function recordsAtRisk({ at_risk: { partitions } }) {
  if (!partitions.length) return null;
  return small("Records at risk", [["Partition", null], ["Mirrored before", NUMBER], ["Source end", NUMBER], ["Records", NUMBER]],
    partitions.slice(0, SHOWN).map((row) => [row.partition, whole(row.mirrored_before), whole(row.source_end), whole(row.records)]), partitions.length - SHOWN, "partition");
}

function topicsOf({ topics }) {
  if (!topics.length) return null;
  return h("details", {}, h("summary", {}, `${count(topics.length, "topic")} that would be promoted`), h("p", { class: "names" }, topics.map((topic) => h("code", {}, topic))));
}
