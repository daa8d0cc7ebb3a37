// Requests to the mirror: figures, commands, and streams of server-sent events. Nothing goes elsewhere.

import { setServerTime } from "./format.js";

const BASE = new URL("../heliograph/v1/", document.baseURI);
const KEPT = "heliograph.login";

/** An answer that is not what was asked for; `status` is 0 if there was none. `logins`: ways to log in. */
export class Failure extends Error {
  constructor(status, message, logins = []) {
    super(message);
    this.status = status;
    this.logins = logins;
  }
}

export const login = {
  get value() {
    return sessionStorage.getItem(KEPT);
  },
  password(name, password) {
    const raw = new TextEncoder().encode(`${name}:${password}`);
    sessionStorage.setItem(KEPT, `Basic ${btoa(String.fromCharCode(...raw))}`);
  },
  token(token) {
    sessionStorage.setItem(KEPT, `Bearer ${token}`);
  },
  forget() {
    sessionStorage.removeItem(KEPT);
  },
};

async function ask(path, options = {}) {
  // Without this header the browser's own window would ask for a password.
  const headers = { "X-Requested-With": "heliograph", Accept: "application/json", ...options.headers };
  if (login.value) headers.Authorization = login.value;
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The mirror does not answer.");
  }
  const date = Date.parse(answer.headers.get("date") ?? "");
  // The header has whole seconds: on average it is half a second older.
  if (!Number.isNaN(date)) setServerTime(date + 500);
  if (!answer.ok) {
    const logins = (answer.headers.get("x-heliograph-logins") ?? "").split(",").map((way) => way.trim());
    throw new Failure(answer.status, await reasonOf(answer), logins);
  }
  return answer;
}

async function reasonOf(answer) {
  const text = await answer.text().catch(() => "");
  try {
    return JSON.parse(text).message ?? text;
  } catch {
    return text || `The mirror answered ${answer.status}.`;
  }
}

function query(path, parameters) {
  const found = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return found.length ? `${path}?${new URLSearchParams(found)}` : path;
}

export async function get(path, parameters = {}, signal = undefined) {
  return (await ask(query(path, parameters), { signal })).json();
}

/** `body`: sent as JSON, if there is one. */
export async function post(path, parameters = {}, body = undefined) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await ask(query(path, parameters), { method: "POST", ...sent })).json();
}

export const flowPath = (flow, rest = "") => `flows/${encodeURIComponent(flow)}${rest}`;

/**
 * Follow a stream until `close`. It connects again by itself, after 1 s, then less often, every 15 s
 * at most, and goes on behind the last event that it has seen. EventSource could not send a login.
 *
 * on: {event(name, data), open(), lost(failure)}; `lost` is called once for each connection that ends.
 */
export class Stream {
  constructor(path, on) {
    this.path = path;
    this.on = on;
    this.last = null;
    this.tries = 0;
    this.closed = false;
    this.run();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  async run() {
    this.abort = new AbortController();
    let failure = new Failure(0, "The connection ended.");
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.last !== null) headers["Last-Event-ID"] = this.last;
      const answer = await ask(this.path, { headers, signal: this.abort.signal });
      this.on.open?.();
      await this.read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      failure = error instanceof Failure ? error : failure;
    }
    if (this.closed) return;
    this.on.lost?.(failure);
    const wait = Math.min(15000, 1000 * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.timer = setTimeout(() => this.run(), wait);
  }

  async read(reader) {
    let text = "";
    for (;;) {
      // Silence for three of the server's signs of life (15 s): the connection is dead.
      const silent = setTimeout(() => this.abort.abort(), 45000);
      const { value, done } = await reader.read().finally(() => clearTimeout(silent));
      if (done || this.closed) return;
      this.tries = 0;
      text += value;
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) this.frame(frame);
    }
  }

  frame(frame) {
    let name = "message";
    const data = [];
    for (const line of frame.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("id: ")) this.last = line.slice(4);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
    }
    if (data.length) this.on.event(name, JSON.parse(data.join("\n")));
  }
}
