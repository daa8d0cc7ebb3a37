// The login form. What is typed is kept in this tab's session storage, and only if it was right.

import { get, login } from "./api.js";
import { choice, empty, h, put } from "./dom.js";

const WAYS = { basic: "Password", bearer: "Token" };

/** Show the form in `main`; `ways` are those that the mirror takes. `done` is called when it knows the caller. */
export function askLogin(main, message, ways, done) {
  const offered = Object.entries(WAYS).filter(([way]) => ways.includes(way));
  if (!offered.length) {
    put(main, h("section", { class: "card login" }, empty("This mirror does not know you", "It asks for a client certificate: add one to the browser, and load the page again.")));
    return;
  }
  let [[kind]] = offered;
  const problem = h("p", { class: "problem", role: "alert" }, message);
  const form = h("form", { class: "card login" });
  const field = (id, label, type, complete) =>
    h("label", { class: "field", for: id }, h("span", {}, label), h("input", { id, name: id, type, autocomplete: complete, required: true, spellcheck: "false" }));

  function draw() {
    put(form,
      h("img", { src: "icon.svg", alt: "", width: 44, height: 44 }),
      h("div", {}, h("h1", {}, "Log in"), h("p", { class: "muted" }, "As a user of this mirror's REST API.")),
      offered.length > 1 ? choice("Way to log in", offered, kind, (value) => {
        kind = value;
        draw();
      }) : null,
      kind === "basic" ? [field("user", "Name", "text", "username"), field("password", "Password", "password", "current-password")] : field("token", "Token", "password", "off"),
      problem, h("button", { type: "submit", class: "primary" }, "Log in"));
    form.querySelector("input").focus();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    if (kind === "basic") login.password(given.get("user"), given.get("password"));
    else login.token(given.get("token").trim());
    try {
      await get("me");
    } catch (error) {
      login.forget();
      const wrong = kind === "basic" ? "Wrong name or password." : "This token is not known here.";
      problem.textContent = error.status === 401 ? wrong : error.message;
      form.querySelector("input").focus();
      return;
    }
    done();
  });
  put(main, form);
  draw();
}
