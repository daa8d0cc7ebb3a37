// The page as a whole: who is logged in, which view is shown, whether the mirror answers.

import { login } from "./api.js";
import { empty, h, put, say } from "./dom.js";
import { clock, tick } from "./format.js";
import { askLogin } from "./login.js";
import { begin, end, on, store } from "./store.js";
import { flowView, global, overview } from "./views.js";

const GLOBAL = { topics: "Topics", groups: "Groups", jobs: "Jobs", events: "Events", configuration: "Configuration" };
const main = document.getElementById("main");
let view = null;

function route() {
  if (!store.me || location.hash === "#main") return;
  const [, first = "", name = "", tab = "partitions"] = location.hash.split("/");
  view?.close();
  if (first === "flow") view = flowView(decodeURIComponent(name), tab);
  else view = GLOBAL[first] ? global(first) : overview();
  put(main, view.element);
  put(document.getElementById("nav"), [["", "Overview"], ...Object.entries(GLOBAL)].map(([key, title]) =>
    h("a", { href: `#/${key}`, "aria-current": key === (GLOBAL[first] || first === "flow" ? first : "") ? "page" : null }, title)));
  document.title = first === "flow" ? `${decodeURIComponent(name)} · Heliograph` : "Heliograph";
}

function connection() {
  const pill = document.getElementById("connection");
  const lost = store.lostAt !== null;
  const long = lost && Date.now() - store.lostAt > 10000;
  pill.className = `pill ${!store.me ? "" : store.live ? "ok" : long ? "bad" : "warn"}`;
  say(pill, !store.me ? "" : store.live ? "live" : long ? `not reachable since ${clock(store.lostAt)} UTC` : "reconnecting");
}

function denied(message = "") {
  end();
  view?.close();
  view = null;
  const known = login.value !== null && store.me !== null;
  store.me = null;
  login.forget();
  document.getElementById("nav").hidden = true;
  document.getElementById("logout").hidden = true;
  say(document.getElementById("who"), "");
  connection();
  askLogin(main, message || (known ? "Your login is not valid any more." : ""), start);
}

async function start() {
  try {
    await begin(() => denied());
  } catch (error) {
    if (error.status === 401) return denied();
    put(main, h("section", { class: "card" }, empty("The mirror does not answer", error.message), h("p", { class: "center" }, h("button", { type: "button", onclick: start }, "Try again"))));
    return;
  }
  say(document.getElementById("who"), store.me.logins.length ? `${store.me.name} · ${store.me.role}` : "");
  document.getElementById("logout").hidden = login.value === null;
  document.getElementById("nav").hidden = false;
  connection();
  route();
}

function theme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => say(button, dark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("heliograph.theme", root.dataset.theme);
    } catch {
      // It holds until the page is left.
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("logout").addEventListener("click", () => denied("You are logged out."));
addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
on("connection", connection);
setInterval(() => {
  if (document.hidden) return;
  tick(main);
  connection();
}, 1000);
theme();
start();
