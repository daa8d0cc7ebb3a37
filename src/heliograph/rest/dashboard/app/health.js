// A flow in a word, and the mirror in a sentence. The words are those of the terminal's table.

import { count, flowName } from "./format.js";
import { isTrouble } from "./advice.js";

/**
 * The condition of a flow.
 * kind: bad (somebody is needed), warn (somebody should know), busy, ok, quiet (by intention).
 * shape: how its arrow is drawn.
 */
export function conditionOf(flow) {
  const state = flow.life.state;
  const troubled = Object.entries(flow.states).filter(([name, n]) => n && isTrouble(name));
  const words = troubled.map(([name, n]) => `${n} ${name}`);
  const parts = Object.entries(flow.parts).filter(([, life]) => life.state !== state);
  const is = (kind, shape, label) => ({ kind, shape, label });
  if (state === "failed") return is("bad", "failed", ["failed", ...words].join(", "));
  if (flow.states.failed || flow.states.stalled) {
    const head = state === "running" ? [] : [state];
    return is("bad", "trouble", [...head, ...words].join(", "));
  }
  const failedPart = parts.find(([, life]) => life.state === "failed");
  if (failedPart) return is("bad", "trouble", `${failedPart[0]} failed`);
  if (state === "paused") return is("quiet", "paused", "paused");
  if (state === "standing by") return is("quiet", "standby", "standing by");
  if (state === "stopped") return is("quiet", "stopped", "stopped");
  if (state === "starting") return is("busy", "starting", "starting");
  if (flow.canary?.overdue) return is("warn", "trouble", "canary lost");
  if (flow.failing_jobs) return is("warn", "trouble", `${count(flow.failing_jobs, "job")} failing`);
  const paused = Object.keys(flow.paused_topics);
  if (paused.length) return is("quiet", "running", paused.length > 1 ? `${paused.length} topics paused` : `topic ${paused[0]} paused`);
  if (words.length) return is("warn", "waiting", words.join(", "));
  const others = parts.map(([part, life]) => `${part} ${life.state}`);
  if (others.length) return is("quiet", "running", others.join(", "));
  if (flow.parts.copying === undefined && Object.keys(flow.parts).length)
    return is("ok", "running", flow.parts.checkpoints ? "checkpoints only" : "heartbeats only");
  if (flow.lag_records === null || flow.states.starting) return is("busy", "starting", "starting");
  return flow.lag_records ? is("ok", "running", "mirroring") : is("ok", "running", "in step");
}

/** The mirror in one sentence. `engine` is null if no flow needs Spark. */
export function sentenceOf(flows, engine) {
  const found = ofFlows(flows);
  if (!engine || engine.state === "ready") return found;
  const kind = found.kind === "bad" || engine.state === "failed" ? "bad" : "busy";
  return { kind, text: `Spark is ${engine.state}; ${found.text}` };
}

function ofFlows(flows) {
  if (flows.length === 0) return { kind: "quiet", text: "No flow is configured" };
  const all = flows.map((flow) => [flow, conditionOf(flow)]);
  const bad = all.filter(([, condition]) => condition.kind === "bad");
  const total = flows.length;
  if (bad.length) {
    const [[flow, condition]] = bad;
    const text = `${bad.length} of ${total} flows ${bad.length === 1 ? "needs" : "need"} attention`;
    return { kind: "bad", text: bad.length > 1 ? text : `${flowName(flow.flow)} needs attention: ${told(condition)}` };
  }
  const warned = all.filter(([, condition]) => condition.kind === "warn");
  if (warned.length) {
    const [flow, condition] = warned[0];
    const more = warned.length > 1 ? `, and ${warned.length - 1} more` : "";
    return { kind: "warn", text: `${warned.length} of ${total} flows ${warned.length === 1 ? "has" : "have"} something to say: ${flowName(flow.flow)} ${condition.label}${more}` };
  }
  const other = all.filter(([, condition]) => condition.kind === "busy" || condition.kind === "quiet");
  if (other.length) {
    const first = other.slice(0, 3).map(([flow, condition]) => `${flowName(flow.flow)} ${condition.label}`);
    const fine = total - other.length;
    const head = fine ? `${count(fine, "flow")} in step; ` : "";
    const more = other.length > 3 ? `, and ${other.length - 3} more` : "";
    return { kind: other.some(([, c]) => c.kind === "busy") ? "busy" : "quiet", text: `${head}${first.join(", ")}${more}` };
  }
  const behind = all.filter(([flow, condition]) => condition.label === "mirroring" && (flow.lag_seconds ?? 0) >= 10);
  if (behind.length) return { kind: "ok", text: `${count(behind.length, "flow")} of ${total} ${behind.length === 1 ? "is" : "are"} catching up` };
  return { kind: "ok", text: total === 1 ? "The flow is in step" : `All ${total} flows in step` };
}

function told(condition) {
  const words = condition.label.split(", ").filter((word) => /^\d/.test(word));
  if (!words.length) return condition.label === "failed" ? "failed" : condition.label;
  const number = words.reduce((sum, word) => sum + Number.parseInt(word, 10), 0);
  return `${words.join(", ")} partition${number === 1 ? "" : "s"}`;
}
