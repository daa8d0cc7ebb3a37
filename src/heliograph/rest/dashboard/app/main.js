// The page as a whole: who is logged in, which view is shown, whether the mirror answers.

import { login } from "./api.js";
import { empty, h, put, s, say } from "./dom.js";
import { flowView, OF_ONE, TABS } from "./flow.js";
import { clock, flowName, lasting, tick } from "./format.js";
import { whereNow } from "./links.js";
import { askLogin } from "./login.js";
import { overview } from "./overview.js";
import { begin, end, on, store } from "./store.js";

const main = document.getElementById("main");
const element = (id) => document.getElementById(id);
const GLOBAL = Object.entries(TABS).filter(([key]) => !OF_ONE.includes(key));
let view = null;

/** A tab's content, of all flows. */
function global(key) {
  const [title, make] = TABS[key];
  const panel = make(null);
  return { element: h("div", { class: "stack" }, h("h1", {}, title), h("section", { class: "card" }, panel.element)), close: () => panel.close() };
}

function route() {
  if (!store.me) return;
  const [first = "", name = "", tab, about] = whereNow();
  const isGlobal = GLOBAL.some(([key]) => key === first);
  view?.close();
  if (first === "flow") view = flowView(name, tab, about);
  else view = isGlobal ? global(first) : overview();
  put(main, view.element);
  const current = isGlobal ? first : "";
  const links = [["", ["Overview"]], ...GLOBAL];
  put(element("nav"), links.map(([key, [title]]) =>
    h("a", { href: `#/${key}`, "data-key": `nav:${key}`, "aria-current": key === current ? "page" : null }, title)));
  document.title = `${first === "flow" ? flowName(name) : isGlobal ? TABS[first][0] : "Overview"} · Heliograph`;
}

function connection() {
  const pill = element("connection");
  const lost = store.lostAt !== null;
  const long = lost && Date.now() - store.lostAt > 10000;
  pill.className = `pill ${!store.me ? "" : store.live ? "ok" : long ? "bad" : "warn"}`;
  say(pill, !store.me ? "" : store.live ? "Live" : long ? `Not reachable since ${clock(store.lostAt)} UTC` : "Connecting");
}

function known(yes) {
  element("nav").hidden = !yes;
  element("logout").hidden = login.value === null || !yes;
  say(element("who"), yes && store.me.logins.length ? `${store.me.name} · ${store.me.role}` : "");
  put(element("foot"), yes ? [`Heliograph ${store.me.version}`, store.startedAt ? [" · running ", lasting(store.startedAt)] : null, " · times are UTC"] : []);
  connection();
}

function denied(message, ways) {
  const before = login.value !== null && store.me !== null;
  end();
  view?.close();
  view = null;
  store.me = null;
  login.forget();
  known(false);
  document.title = "Log in · Heliograph";
  askLogin(main, message || (before ? "Your login is not valid any more." : ""), ways, start);
}

async function start() {
  try {
    await begin((failure) => denied("", failure.logins));
  } catch (error) {
    if (error.status === 401) return denied("", error.logins);
    put(main, h("section", { class: "card" }, empty("The mirror does not answer", error.message),
      h("p", { class: "center" }, h("button", { type: "button", onclick: start }, "Try again"))));
    return;
  }
  known(true);
  route();
  showAbout();
}

/** Whoever follows a link to some rows of a flow wants to see them. */
async function showAbout() {
  const shown = view;
  await shown?.ready;
  if (view === shown && whereNow()[3]) element("tab")?.scrollIntoView();
}

const SUN = "M12 4V2M12 22v-2M4 12H2M22 12h-2M6.300 6.300 4.900 4.900M19.100 19.100l-1.400-1.400M6.300 17.700l-1.400 1.400M19.100 4.900l-1.400 1.400M16.500 12a4.500 4.500 0 1 1-9 0 4.500 4.500 0 0 1 9 0z";
const MOON = "M20.500 14.500A8.500 8.500 0 0 1 9.500 3.500a8.500 8.500 0 1 0 11 11z";

function theme() {
  const button = element("theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    const label = dark() ? "Light theme" : "Dark theme";
    button.setAttribute("aria-label", label);
    button.setAttribute("title", label);
    put(button, s("svg", { viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true", class: "line-icon" }, s("path", { d: dark() ? SUN : MOON })));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("heliograph.theme", root.dataset.theme);
    } catch {
      // It holds until the page is left.
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

element("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
element("logout").addEventListener("click", () => {
  const ways = store.me?.logins ?? [];
  denied("You are logged out.", ways);
});
addEventListener("hashchange", () => {
  const tabs = document.querySelector("#tab");
  const [first, name, tab] = whereNow();
  const sameFlow = first === "flow" && tab && tabs?.querySelector(".tabs")?.getAttribute("aria-label") === `Of flow ${name}`;
  route();
  if (sameFlow) return document.querySelector("#tab .tabs [aria-current]")?.focus({ preventScroll: true });
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  showAbout();
});
on("connection", connection);
setInterval(() => {
  if (document.hidden) return;
  tick(document.body);
  connection();
}, 1000);
theme();
start();
