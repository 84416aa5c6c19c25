"use strict";
(() => {
  const root = document.documentElement;
  const tools = document.querySelector(".tools");
  const theme = document.getElementById("theme");
  const expand = document.getElementById("expand");
  const details = () => document.querySelectorAll("main details");
  tools.hidden = false;

  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  name();

  let open = false;
  const setAll = (value) => { details().forEach((d) => { d.open = value; }); };
  expand.addEventListener("click", () => {
    open = !open;
    setAll(open);
    expand.textContent = open ? "Close all tables" : "Open all tables";
  });
  addEventListener("beforeprint", () => document.querySelectorAll("#answers details").forEach((d) => { d.open = true; }));

  // a filter per gallery: only useful with a script, so the script makes it
  document.querySelectorAll(".gallery").forEach((gallery) => {
    const cards = [...gallery.querySelectorAll(".card")];
    if (cards.length < 6) return;
    const label = document.createElement("label");
    label.className = "filter";
    label.textContent = "Show prompts that contain ";
    const input = document.createElement("input");
    input.type = "search";
    label.append(input);
    gallery.querySelector(".cards").before(label);
    input.addEventListener("input", () => {
      const word = input.value.toLowerCase();
      gallery.querySelectorAll(".rest").forEach((rest) => { rest.open = word !== "" || rest.open; });
      cards.forEach((card) => { card.hidden = !card.textContent.toLowerCase().includes(word); });
    });
  });
})();
