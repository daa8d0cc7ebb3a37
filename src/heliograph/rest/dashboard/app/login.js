// The login form. What is typed is kept in this tab's session storage, and only if it was right.

import { get, login } from "./api.js";
import { choice, h, put } from "./dom.js";

/** Show the form in `main`; `done` is called when the mirror knows the caller. */
export function askLogin(main, message, done) {
  let kind = "password";
  const problem = h("p", { class: "problem", role: "alert" }, message);
  const form = h("form", { class: "card login" });
  const field = (id, label, type, complete) =>
    h("label", { class: "field", for: id }, h("span", {}, label), h("input", { id, name: id, type, autocomplete: complete, required: true, spellcheck: "false" }));

  function draw() {
    put(form,
      h("h1", {}, "Log in"),
      h("p", { class: "muted" }, "With a name and a password, or a token, of this mirror's REST API."),
      choice("Way to log in", [["password", "Password"], ["token", "Token"]], kind, (value) => {
        kind = value;
        draw();
      }),
      kind === "password" ? [field("user", "Name", "text", "username"), field("password", "Password", "password", "current-password")] : field("token", "Token", "password", "off"),
      problem, h("button", { type: "submit", class: "primary" }, "Log in"));
    form.querySelector("input").focus();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    if (kind === "password") login.password(given.get("user"), given.get("password"));
    else login.token(given.get("token").trim());
    try {
      await get("me");
    } catch (error) {
      login.forget();
      problem.textContent = error.status === 401
        ? kind === "password" ? "Wrong name or password." : "This token is not known here."
        : error.message;
      form.querySelector("input").focus();
      return;
    }
    done();
  });
  put(main, form);
  draw();
}
