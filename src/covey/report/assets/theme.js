"use strict";
// The switch between light and dark: until it is pressed, the reader's system decides.
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.hidden = false;
  name();
  system.addEventListener("change", name);
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
})();
