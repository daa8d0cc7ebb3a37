// Counts, sizes, durations and times for people. What is not known is a dash, never 0.

import { h } from "./dom.js";

export const UNKNOWN = "–";
const WHOLE = new Intl.NumberFormat("en-US");
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
let skewMs = 0;

/** The server's clock counts: times that it gives are compared with its own. */
export function setServerTime(ms) {
  const skew = ms - Date.now();
  skewMs = Math.abs(skew) > 2000 ? skew : 0;
}

export const now = () => Date.now() + skewMs;

/** A->B as people write it. */
export const flowName = (name) => name.replace("->", " → ");

/** 950, 12.3k, 4.56M: as the terminal shows it. */
export function amount(value) {
  if (value === null || value === undefined) return UNKNOWN;
  for (const [least, unit, name] of [[999.5e6, 1e9, "G"], [999.5e3, 1e6, "M"], [1e4, 1e3, "k"]]) {
    if (value >= least) return `${Number((value / unit).toPrecision(3))}${name}`;
  }
  return value > 0 && value < 10 && value % 1 ? value.toFixed(1) : WHOLE.format(Math.round(value));
}

export function whole(value) {
  return value === null || value === undefined ? UNKNOWN : WHOLE.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= unit * 0.9995) return `${Number((value / unit).toPrecision(3))} ${name}`;
  }
  return `${Math.round(value)} B`;
}

/** A figure with its unit; a dash alone if it is not known. */
export const withUnit = (value, unit) => (value === null || value === undefined ? UNKNOWN : `${amount(value)} ${unit}`);

/** Records; `more`: some could not be counted. */
export const records = (value, more = false, show = amount) =>
  value === null || value === undefined ? UNKNOWN : `${show(value)}${more ? "+" : ""} ${value === 1 ? "record" : "records"}`;

export const byteRate = (value) => (value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`);

/** 0.4 s, 34 s, 5 min, 3.2 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds >= 2 * 86400) return `${Number((seconds / 86400).toPrecision(3))} d`;
  if (seconds >= 5400) return `${Number((seconds / 3600).toPrecision(3))} h`;
  if (seconds >= 90) return `${Number((seconds / 60).toPrecision(3))} min`;
  if (seconds > 0 && seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  return seconds < 10 ? `${Number(seconds.toFixed(1))} s` : `${Math.round(seconds)} s`;
}

export function count(number, one, many = `${one}s`) {
  return `${whole(number)} ${number === 1 ? one : many}`;
}

/** Whole units: nobody needs a tenth of a minute of what is gone. */
function coarse(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return seconds < 48 * 3600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function relative(ms, lasting) {
  const away = (now() - ms) / 1000;
  if (lasting) return `for ${coarse(Math.max(0, away))}`;
  if (Math.abs(away) < 1.5) return "now";
  return away > 0 ? `${coarse(away)} ago` : `in ${coarse(-away)}`;
}

/** A time as a <time> element: relative, absolute on hover, kept up to date by `tick`. */
export function when(iso, lasting = false) {
  if (!iso) return UNKNOWN;
  const ms = Date.parse(iso);
  return h("time", { datetime: iso, title: absolute(ms), "data-ms": ms, "data-lasting": lasting }, relative(ms, lasting));
}

/** How long something has been so: "for 3 min". */
export const lasting = (iso) => when(iso, true);

export function absolute(ms) {
  const text = new Date(ms).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

/** Hours, minutes and seconds in UTC, as in the log. */
export function clock(ms, seconds = true) {
  return new Date(ms).toISOString().slice(11, seconds ? 19 : 16);
}

/** The clock, and the day before it if that is not today. */
export function dayAndClock(ms) {
  const [at, today] = [new Date(ms), new Date(now())];
  const same = at.toISOString().slice(0, 10) === today.toISOString().slice(0, 10);
  return same ? clock(ms) : `${MONTHS[at.getUTCMonth()]} ${at.getUTCDate()} ${clock(ms, false)}`;
}

/** Bring all relative times below an element up to date. */
export function tick(root) {
  for (const element of root.querySelectorAll("time[data-ms]")) {
    const text = relative(Number(element.dataset.ms), element.dataset.lasting !== undefined);
    if (element.textContent !== text) element.textContent = text;
  }
}
