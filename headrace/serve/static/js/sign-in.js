// The question for a token, where the server asks for one.

import { useToken } from "./api.js";

const byId = (id) => document.getElementById(id);

/** Done when one was given; whether it is right is the server's to say. */
export function askForToken() {
  const form = byId("sign-in");
  form.hidden = false;
  byId("token").focus();
  return new Promise((done) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        useToken(byId("token").value.trim());
        byId("token").value = "";
        form.hidden = true;
        done();
      },
      { once: true },
    );
  });
}
