// Figures over time: asked from the mirror once, then kept up to date from the flows' stream.

import { get } from "./api.js";
import { now } from "./format.js";
import { on, store } from "./store.js";

/** Places in a point of the mirror's answer. */
export const LAG_RECORDS = 1;
export const LAG_SECONDS = 2;
export const RECORDS = 3;
export const BYTES = 4;
export const CANARY = 5;
const POINTS = 300;
/** The mirror keeps a point every 5 s; more are not drawn. */
const EVERY_MS = 5000;

/** A mirror that has run for less has little to show: its past is drawn larger. */
const YOUNG_MS = 900000;

/** Figures of one flow, or of all (null). `changed` is called whenever there is something new. */
export class History {
  constructor(flow, changed) {
    this.flow = flow;
    this.changed = changed;
    this.seconds = now() - Date.parse(store.startedAt) < YOUNG_MS ? 900 : 3600;
    this.step = 5;
    this.series = new Map();
    this.failure = null;
    this.timer = setInterval(() => this.extend(), EVERY_MS);
    this.off = on("again", () => this.load());
    this.load();
  }

  choose(seconds) {
    this.seconds = seconds;
    this.load();
  }

  close() {
    clearInterval(this.timer);
    this.off();
    this.closed = true;
  }

  async load() {
    const asked = this.seconds;
    try {
      const found = await get("history", { flow: this.flow, seconds: asked, points: POINTS });
      if (this.closed || asked !== this.seconds) return;
      this.series = new Map();
      for (const [flow, { step_seconds: step, points }] of Object.entries(found.flows)) {
        this.step = step;
        this.series.set(flow, points);
      }
      this.failure = null;
    } catch (error) {
      this.failure = error.message;
    }
    this.extend();
  }

  /** Add what is known now. While the stream is silent nothing has changed; while it is lost, nothing is known. */
  extend() {
    if (this.closed || document.hidden || !store.flows) return;
    const at = now() / 1000;
    for (const flow of store.flows) {
      if (this.flow !== null && flow.flow !== this.flow) continue;
      if (!this.series.has(flow.flow)) this.series.set(flow.flow, []);
      const points = this.series.get(flow.flow);
      const known = store.live;
      const point = known
        ? [at, flow.lag_records, flow.lag_seconds, flow.records_per_second, flow.bytes_per_second,
           flow.canary?.latency_seconds ?? null]
        : [at, null, null, null, null, null];
      const last = points.at(-1);
      if (last && last.live && at - last.began < this.step) merge(last, point);
      else {
        // What the mirror measured a moment ago is drawn already.
        if (last && at - last[0] < 1) continue;
        point.live = true;
        point.began = at;
        points.push(point);
      }
      while (points.length && points[0][0] < at - this.seconds) points.shift();
    }
    this.changed();
  }
}

/** As the mirror does it: peaks of lag stay visible, rates are the newest. */
function merge(last, point) {
  last[0] = point[0];
  for (const place of [LAG_RECORDS, LAG_SECONDS]) {
    last[place] = last[place] === null || point[place] === null ? point[place] : Math.max(last[place], point[place]);
  }
  for (const place of [RECORDS, BYTES, CANARY]) last[place] = point[place];
}
