// What a flow would lose if its source died now, and how long a failover takes. The words are those of the terminal.

import { count, duration, flowName, now, when } from "./format.js";

/** What was measured longer ago is said to be old. */
const OLD_MS = 10000;

const rests = (flow) => flow.life.state === "standing by" && flow.at_risk === null;
const copies = (flow) => (flow.parts.copying !== undefined || Object.keys(flow.parts).length === 0) && !rests(flow);

/** The sentence about one flow; nothing if it copies no records, or is the direction that rests. */
export function riskOf(flow) {
  if (!copies(flow)) return null;
  const risk = flow.at_risk;
  const head = `If ${flow.source} died now: `;
  if (!risk || risk.records === null) return `${head}what would be lost is not known`;
  const waited = risk.seconds === null ? "not known for how long" : duration(risk.seconds);
  const lost = count(risk.records, "record") + (risk.records ? ` in ${count(risk.topics, "topic")}, ${waited}` : "");
  const unknown = risk.unmeasured ? `; what ${count(risk.unmeasured, "partition")} would lose is not known` : "";
  const old = now() - Date.parse(risk.measured_at) >= OLD_MS;
  return [head + lost + unknown, old ? [`; ${flow.source} last answered `, when(risk.measured_at)] : null];
}

/** How long the last failover took, rehearsed or not. */
export const recoveryOf = (flow) =>
  flow.rto_seconds === null ? "never rehearsed" : [duration(flow.rto_seconds), ", ", when(flow.rto_measured_at)];

/** What all flows would lose: the sentence about the one with the oldest records, and of how many nothing is known. */
export function worstRisk(flows) {
  const all = flows.filter(copies);
  if (all.length < 2) return all.map(riskOf);
  const known = all.filter((flow) => (flow.at_risk?.records ?? null) !== null);
  const unknown = all.length - known.length;
  const rest = unknown ? `What ${count(unknown, "flow")} would lose is not known.` : "";
  if (!known.length) return rest;
  if (known.every((flow) => flow.at_risk.records === 0 && !flow.at_risk.unmeasured)) return `If a source died now: 0 records. ${rest}`;
  const age = (flow) => flow.at_risk.seconds ?? Infinity;
  const [worst] = known.sort((a, b) => age(b) - age(a) || b.at_risk.records - a.at_risk.records);
  return [`${flowName(worst.flow)} would lose most. `, riskOf(worst), `. ${rest}`];
}
