// What the page knows: who asks, the flows, the last events, and whether the mirror answers.
// Streams are open only while somebody can see the page.

import { Stream, get } from "./api.js";
import { whenReleased } from "./dom.js";

/** As many events as the mirror keeps. */
const MOST_EVENTS = 1000;

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

/** Whether this caller may fail a flow over; else why not. */
export function admission() {
  if (!store.me) return { may: false, why: "" };
  if (!store.me.changes) return permission();
  if (store.me.role !== "admin") return { may: false, why: `Your role is ${store.me.role}. An admin can fail over.` };
  return { may: true, why: "" };
}

export async function begin(denied) {
  onDenied = denied;
  const [me, snapshot] = await Promise.all([get("me"), get("snapshot")]);
  store.me = me;
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
  let { engine } = store;
  const flows = new Stream("flows/stream", {
    open: () => {
      const again = store.lostAt !== null;
      store.live = true;
      store.lostAt = null;
      tell("connection");
      if (again) tell("again");
    },
    lost: (failure) => {
      if (failure.status === 401) return onDenied(failure);
      store.live = false;
      store.lostAt ??= Date.now();
      tell("connection");
    },
    event: (name, data) => {
      // Spark comes first, from the same look at the mirror.
      if (name === "engine") engine = data;
      if (name !== "flows") return;
      const now = engine;
      whenReleased(() => {
        store.engine = now;
        store.flows = data;
        store.version += 1;
        tell("flows");
      });
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
  tell("events", data);
}

export function end() {
  for (const stream of streams) stream.close();
  streams = [];
}

/** Browsers open few connections to one place: a page that nobody sees must not keep any. */
function seenOrNot(seen) {
  if (!store.me) return;
  if (!seen) end();
  else if (!streams.length) {
    follow();
    tell("again");
  }
}

document.addEventListener("visibilitychange", () => seenOrNot(!document.hidden));
// A page that was left may be kept, streams and all, for the way back.
addEventListener("pagehide", () => seenOrNot(false));
addEventListener("pageshow", (event) => event.persisted && seenOrNot(true));
