// Light or dark: as the system says, until somebody chooses.

import { setText } from "./dom.js";

export function themeButton(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () =>
    (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    setText(button, dark() ? "Light" : "Dark");
    button.setAttribute("aria-label", `Use the ${dark() ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("headrace-theme", chosen);
    } catch {
      // It then lasts as long as the page.
    }
    name();
  });
  system.addEventListener("change", name);
  name();
}
