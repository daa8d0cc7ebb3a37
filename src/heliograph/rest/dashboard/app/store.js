// What the page knows: who asks, the flows, the last events, and whether the mirror answers.
// Streams are open only while somebody can see the page.

import { Stream, get } from "./api.js";

/** As many events as the mirror keeps. */
const MOST_EVENTS = 1000;
/** A page that was hidden for so long lets its streams go. */
const HIDDEN_MS = 10000;

export const store = {
  me: null,
  flows: null,
  engine: null,
  startedAt: null,
  events: [],
  missed: 0,
  live: false,
  lostAt: null,
  /** Counts what arrived on the flows' stream: whoever shows figures knows whether there are new ones. */
  version: 0,
};

const listeners = new Map();
let streams = [];
let hiddenTimer = 0;
let lastEvent = null;
let onDenied = () => {};

/** Be called on "flows", "events", "connection" or "again" (connected anew); returns what ends that. */
export function on(what, run) {
  if (!listeners.has(what)) listeners.set(what, new Set());
  listeners.get(what).add(run);
  return () => listeners.get(what).delete(run);
}

function tell(what, ...given) {
  for (const run of [...(listeners.get(what) ?? [])]) run(...given);
}

export const flowNamed = (name) => store.flows?.find((flow) => flow.flow === name) ?? null;

/** Whether this caller may pause and restart; else why not. */
export function permission() {
  if (!store.me) return { may: false, why: "" };
  if (!store.me.changes)
    return { may: false, why: "Read only: heliograph.rest.changes is not set in the mirror's file." };
  if (store.me.role === "viewer")
    return { may: false, why: "Your role is viewer. An operator can pause, resume and restart." };
  return { may: true, why: "" };
}

export async function begin(denied) {
  onDenied = denied;
  store.me = await get("me");
  const snapshot = await get("snapshot");
  takeSnapshot(snapshot);
  lastEvent = null;
  store.events = [];
  follow();
}

function takeSnapshot(snapshot) {
  store.engine = snapshot.engine;
  store.startedAt = snapshot.started_at;
  store.flows = snapshot.flows;
  store.version += 1;
}

function follow() {
  if (streams.length) return;
  const after = lastEvent ?? 0;
  const flows = new Stream("flows/stream", {
    open: () => {
      const again = store.lostAt !== null;
      store.live = true;
      store.lostAt = null;
      tell("connection");
      if (again) tell("again");
    },
    lost: (failure) => {
      if (failure.status === 401) return onDenied();
      store.live = false;
      store.lostAt ??= Date.now();
      tell("connection");
    },
    event: (name, data) => {
      if (name !== "flows") return;
      store.flows = data;
      store.version += 1;
      tell("flows");
    },
  });
  const events = new Stream(`events/stream?after=${after}`, { event: take });
  events.last = lastEvent;
  streams = [flows, events];
}

function take(name, data) {
  if (name === "missed") {
    store.missed += data.missed;
    return tell("events");
  }
  // Numbers begin anew when the mirror was started anew.
  if (lastEvent !== null && data.sequence <= Number(lastEvent)) store.events = [];
  lastEvent = String(data.sequence);
  store.events.push(data);
  if (store.events.length > MOST_EVENTS) store.events.splice(0, store.events.length - MOST_EVENTS);
  if (data.kind === "engine") refreshEngine();
  tell("events", data);
}

async function refreshEngine() {
  try {
    takeSnapshot(await get("snapshot"));
    tell("flows");
  } catch {
    // The stream says that the mirror does not answer.
  }
}

export function end() {
  clearTimeout(hiddenTimer);
  for (const stream of streams) stream.close();
  streams = [];
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (!store.me) return;
  if (document.hidden) {
    hiddenTimer = setTimeout(end, HIDDEN_MS);
  } else if (!streams.length) {
    follow();
    tell("again");
  }
});
