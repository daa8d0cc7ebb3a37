// Signs for states: each has a shape of its own, so that colour is never all there is.

import { h, s } from "./dom.js";

const PATHS = {
  ok: "M3.5 8.5 6.5 11.5 12.5 4.8",
  bad: "M8 3.500v5.500M8 12v.4",
  warn: "M8 4v4.800M8 11.800v.3",
  busy: "M8 4.200V8l2.6 1.8",
  quiet: "M6 4.800v6.400M10 4.800v6.4",
  trouble: "M8 4v4.800M8 11.800v.3",
  failed: "M4.8 4.800l6.4 6.400M11.2 4.800l-6.4 6.4",
  paused: "M6 4.800v6.400M10 4.800v6.4",
  standby: "M4.5 8h7",
  stopped: "M5.2 5.200h5.600v5.600H5.200z",
  starting: "M8 4.200V8l2.6 1.8",
  waiting: "M4.6 8h.1M8 8h.1M11.4 8h.1",
  running: "M5 4.5 9 8l-4 3.500M8.5 4.5 12.5 8l-4 3.5",
};
const TRIANGLE = "M8 1.2 15.2 14H.8z";

/** Sixteen by sixteen: a round, or for trouble a triangle, with a sign in it. */
export function sign(name, kind) {
  const triangular = name === "trouble" || name === "warn" || name === "bad";
  return s(
    "svg",
    { class: `sign ${kind}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    triangular ? s("path", { class: "ground", d: TRIANGLE }) : s("circle", { class: "ground", cx: 8, cy: 8, r: 7.5 }),
    s("path", {
      class: "mark",
      d: triangular ? "M8 5.800v4M8 12v.2" : PATHS[name] ?? PATHS.running,
    }),
  );
}

const OF_PARTITION = {
  idle: ["ok", "ok"], copying: ["running", "ok"], starting: ["starting", "busy"], waiting: ["waiting", "warn"],
  throttled: ["waiting", "warn"], quarantining: ["trouble", "warn"], stalled: ["trouble", "bad"],
  failed: ["failed", "bad"], running: ["ok", "ok"], paused: ["paused", "quiet"],
  "standing by": ["standby", "quiet"], stopped: ["stopped", "quiet"], ready: ["ok", "ok"],
};

const signOf = (state) => OF_PARTITION[state] ?? ["waiting", "quiet"];

/** The state of a partition, a topic, a part or a flow: sign and word. */
export function stateBadge(state) {
  const [name, kind] = signOf(state);
  return h("span", { class: `state ${kind}` }, sign(name, kind), state);
}

/** The class that colours it. */
export const kindOf = (state) => signOf(state)[1];

/** Why something is in a state: lines with a bar in its colour. */
export const because = (state, ...lines) => h("div", { class: `because ${kindOf(state)}` }, lines);

export function conditionBadge(condition) {
  const name = condition.shape === "running" ? "ok" : condition.shape;
  return h("span", { class: `state ${condition.kind}` }, sign(name, condition.kind), condition.label);
}
