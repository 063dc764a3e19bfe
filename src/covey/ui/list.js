"use strict";
// Asks for the entries every second while something runs, and redraws only what changed. All text goes in as text, never as markup.
(() => {
  const at = (id) => document.getElementById(id);
  const svgName = "http://www.w3.org/2000/svg";
  const FIRST = 25; // rows of a group that are shown unasked
  const MOST = 8; // runs in a comparison: as many as there are colours
  const cards = new Map(); // path -> { said, element }: what was drawn last
  const rows = new Map();
  const opened = new Set(); // groups of which all rows are wanted
  const ticked = new Set();
  let version = "";
  let entries = [];

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children.filter((child) => child !== ""));
    return element;
  };
  const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const underWay = (entry) => entry.status === "running" || entry.status === "starting";

  const ago = (then) => {
    const seconds = Math.max(0, Date.now() / 1000 - then);
    if (seconds < 60) return "just now";
    for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
    }
  };

  const curve = (values, height) => {
    const drawing = document.createElementNS(svgName, "svg");
    drawing.setAttribute("class", values.length > 1 ? "curve c0" : "curve empty");
    drawing.setAttribute("viewBox", `0 0 1000 ${height}`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true");
    if (values.length > 1) {
      const low = Math.min(...values), span = Math.max(...values) - low || 1;
      const points = values.map((v, i) => `${(1000 * i / (values.length - 1)).toFixed(1)} ${(3 + (height - 6) * (1 - (v - low) / span)).toFixed(1)}`);
      const path = document.createElementNS(svgName, "path");
      path.setAttribute("class", "line c0");
      path.setAttribute("d", `M${points.join("L")}`);
      drawing.append(path);
    }
    return drawing;
  };

  const name = (entry) => make("h3", {}, entry.page ? make("a", { href: entry.page }, entry.title) : entry.title);
  const where = (entry, path) => make("p", { className: "sub" }, path ? make("code", {}, path) : "", path && entry.facts ? " · " : "", entry.facts,
    entry.operation ? " · " : "", entry.operation ? make("a", { href: entry.operation }, "operation") : "");

  const card = (entry) => {
    const bar = make("progress", { max: entry.total || 1, value: entry.done });
    bar.setAttribute("aria-label", `rounds of ${entry.title}`);
    const facts = make("p", { className: "facts" },
      make("span", {}, "Round ", make("b", {}, String(entry.done)), entry.total ? ` of ${entry.total}` : ""),
      entry.accuracy ? make("span", {}, "accuracy ", make("b", {}, entry.accuracy)) : "",
      make("span", {}, entry.status === "starting" ? "preparing" : entry.left ? `${entry.left} left` : entry.total && entry.done >= entry.total ? "finishing" : ""));
    return make("li", {}, name(entry), where(entry, entry.path), curve(entry.curve, 74), bar, facts);
  };

  const said = (entry) => {
    if (entry.status === "stopped") {
      const words = entry.done ? `stopped after round ${entry.done}${entry.total ? ` of ${entry.total}` : ""}` : "stopped before its first round";
      return make("p", { className: "chip stopped small-text", title: `covey resume ${entry.path}` }, words);
    }
    if (underWay(entry)) return make("p", { className: "chip going small-text" }, `round ${entry.done} of ${entry.total}`);
    return entry.verdict ? make("p", { className: `chip small-text ${entry.verdict_kind}` }, entry.verdict) : make("p", { className: "small-text" });
  };

  const row = (entry) => {
    const when = make("p", { className: "small-text when" }, ago(entry.changed));
    when.dataset.then = entry.changed;
    const what = make("div", { className: "what" }, name(entry), where(entry, entry.path.split("/").pop()));
    if (entry.kind !== "run") return make("li", { className: "row document" }, make("span", { className: "tick-box" }), what, when);
    const box = make("input", { type: "checkbox", name: "run", value: entry.path, checked: ticked.has(entry.path), disabled: !entry.page });
    box.setAttribute("aria-label", `compare ${entry.title}, ${entry.path}`);
    box.addEventListener("change", () => { ticked[box.checked ? "add" : "delete"](entry.path); tally(); });
    return make("li", { className: "row" }, make("span", { className: "tick-box" }, box), what, curve(entry.curve, 30),
      make("span", { className: "value" }, entry.accuracy), said(entry), make("span", { className: "small-text" }, entry.cost), when);
  };

  // An element for every entry, made anew only where the entry says something else than before.
  const drawn = (known, draw, entry) => {
    const key = `${entry.kind} ${entry.path}`, now = JSON.stringify(entry);
    if (known.get(key)?.said !== now) known.set(key, { said: now, element: draw(entry) });
    return known.get(key).element;
  };

  // Puts elements in place; those that already stand there are not moved, so that focus and scrolling stay.
  const place = (parent, elements) => {
    const wanted = new Set(elements);
    for (const old of [...parent.children]) if (!wanted.has(old)) old.remove();
    elements.forEach((element, i) => { if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] || null); });
  };

  const groupOf = (entry) => entry.path.split("/").slice(0, -1).join("/");
  const groups = new Map(); // folder -> its elements

  const group = (folder, members) => {
    if (!groups.has(folder)) {
      const title = make("h3"), list = make("ol", { className: "rows" }), more = make("button", { type: "button", className: "more" });
      more.addEventListener("click", () => { opened.add(folder); draw(); });
      groups.set(folder, { box: make("div", { className: "group" }, title, list, more), title, list, more });
    }
    const found = groups.get(folder);
    found.title.replaceChildren(folder || "In the folder itself", make("span", { className: "soft" }, ` ${members.length}`));
    const shown = opened.has(folder) ? members : members.filter((entry, i) => i < FIRST || ticked.has(entry.path));
    place(found.list, shown.map((entry) => drawn(rows, row, entry)));
    found.more.hidden = shown.length === members.length;
    found.more.textContent = `Show all ${members.length}`;
    return found.box;
  };

  const headline = () => {
    const runs = entries.filter((entry) => entry.kind === "run"), live = runs.filter(underWay).length;
    if (!entries.length) return "No runs here yet";
    return live ? `${counted(live, "run")} under way, ${counted(runs.length - live, "other")}` : counted(runs.length, "run");
  };

  const draw = () => {
    at("headline").textContent = headline();
    at("lede").textContent = entries.length ? "Open a run's report by its name; tick two or more to compare them." : "A run appears here as soon as it starts.";
    const live = entries.filter(underWay);
    at("live").hidden = !live.length;
    place(at("live").querySelector("ol"), live.map((entry) => drawn(cards, card, entry)));
    const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = entries.filter((entry) => words.every((word) => `${entry.title} ${entry.facts} ${entry.path} ${entry.status} ${entry.verdict} ${entry.kind}`.toLowerCase().includes(word)));
    const byFolder = new Map();
    for (const entry of matching) byFolder.set(groupOf(entry), [...(byFolder.get(groupOf(entry)) || []), entry]);
    at("all").hidden = !entries.length;
    at("none").hidden = !entries.length || matching.length > 0;
    place(at("groups"), [...byFolder].map(([folder, members]) => group(folder, members)));
    const present = new Set(entries.map((entry) => entry.path));
    for (const path of ticked) if (!present.has(path)) ticked.delete(path);
    tally();
  };

  const tally = () => {
    at("compare").hidden = !ticked.size;
    at("go").disabled = ticked.size < 2 || ticked.size > MOST;
    at("ticked").textContent = counted(ticked.size, "run") + (ticked.size < 2 ? ": tick another to compare" : ticked.size > MOST ? `: at most ${MOST} compare` : " ticked");
  };

  const poll = async () => {
    try {
      const answer = await fetch(`runs.json?seen=${version}`);
      if (answer.status === 200) {
        const found = await answer.json();
        [version, entries] = [found.version, found.entries];
        draw();
      }
      at("lost").hidden = true;
    } catch {
      at("lost").hidden = false;
    }
    for (const when of document.querySelectorAll("[data-then]")) {
      const words = ago(Number(when.dataset.then));
      if (when.textContent !== words) when.textContent = words;
    }
  };

  // Nobody looks at a hidden page: it asks nothing until it is seen again.
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const follow = async () => {
    for (;;) {
      const begun = performance.now();
      if (!document.hidden) await poll();
      const took = performance.now() - begun; // a folder with thousands of runs is looked at less often
      await wait(Math.max(entries.some(underWay) ? 1000 : 2500, 8 * took));
    }
  };

  at("filter").addEventListener("input", draw);
  at("filter").addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
  at("clear").addEventListener("click", () => {
    ticked.clear();
    for (const box of document.querySelectorAll("input[name=run]")) box.checked = false;
    draw();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  addEventListener("pageshow", (event) => { // the browser's way back restores ticks on boxes that it keeps
    if (event.persisted) for (const box of document.querySelectorAll("input[name=run]:checked")) ticked.add(box.value);
    tally();
  });

  follow();
})();
