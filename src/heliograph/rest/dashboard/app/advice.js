// What states and codes mean, and what to do: the words of docs/status.md and docs/surprises.md.

/** From the state that needs somebody most to the one that needs nobody. */
export const STATES = ["failed", "stalled", "quarantining", "throttled", "waiting", "starting", "copying", "idle"];

const MEANING = {
  idle: "All that can be read on the source is on the target.",
  copying: "It is behind, and moving.",
  starting: "Nothing of it was copied since the mirror started.",
  waiting: "It has to wait, and says for what.",
  paused: "Nothing of it is copied until it is resumed.",
  throttled: "A broker's quota slows it down.",
  quarantining: "Records that the target does not take are being set aside.",
  stalled: "It is behind and does not move, or it cannot be measured.",
  failed: "It cannot be copied as things are. It is tried again by itself, every 30 s at most.",
};

const BY_STATE = {
  starting: "Wait. If no task starts, an event flow.waiting says so.",
  waiting: "Mostly nothing. For a transaction that never ends, run kafka-transactions.sh find-hanging on the source.",
  paused: "Resume it when it should go on. Its lag grows until then.",
  throttled: "Raise the quota of the mirror's client, if it falls behind.",
  quarantining: "Look at the quarantine topic.",
  stalled: "Look at the broker that the reason names, or at Spark. Nothing has to be restarted: it goes on when the cause is gone.",
  failed: "Do what the reason says. Nothing has to be restarted: it is tried again by itself.",
};

const BY_CODE = {
  "target.refused": "Raise max.message.bytes of the remote topic, or set heliograph.on.refused=quarantine. The next attempt asks for it anew.",
  "target.unknown": "Nobody accounts for the records that are in the remote topic. Delete the remote topic to mirror it from the start, or set heliograph.on.unknown.target=append to go on behind them.",
  "source.data-loss": "Records were deleted on the source before they were mirrored. Set heliograph.on.data.loss to continue or restart-topic. Then raise the source's retention.",
  "source.truncated": "The source lost records that were mirrored; the target has the only copy. Save them if they matter, then set heliograph.on.truncation to continue or restart-topic.",
  "source.recreated": "The source topic was deleted and created again. Set heliograph.on.recreation to continue or restart-topic.",
  "source.shrunk": "The source topic was created again with fewer partitions. Set heliograph.on.recreation to continue or restart-topic.",
};

const FLOW = {
  starting: "It connects to its clusters, or waits for Spark.",
  paused: "It was paused. Its lag is measured on. Resume it when it should go on.",
  "standing by": "Another mirror has the flow. The figures show that one's work. Nothing has to be done.",
  failed: "Do what the reason says. Nothing has to be restarted: it is tried again by itself.",
  stopped: "It was stopped, and stays so until the mirror is started again.",
};

const FLOW_CODE = {
  "cluster.unreachable": "Check that the cluster's brokers run, and that this machine reaches them. It is tried again by itself.",
};

export const meaningOf = (state) => MEANING[state] ?? "";
/** What to do about a flow; empty while it runs. */
export const flowAdvice = ({ state, code }) => FLOW_CODE[code] ?? FLOW[state] ?? "";

/** What to do about a partition; empty if there is nothing to do. */
export function adviceFor({ state, code }) {
  if (state !== "failed" && state !== "stalled") return BY_STATE[state] ?? "";
  return BY_CODE[code] ?? BY_STATE[state] ?? "";
}

export const isTrouble = (state) => !["idle", "copying", "starting"].includes(state);
/** Whether somebody is needed; others should be known. */
export const isBad = (state) => state === "failed" || state === "stalled";
