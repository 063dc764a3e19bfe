"use strict";
// The page reads well without this. Here: hovering reads values, legends hide series, charts are saved, a copy button.
(() => {
  const tip = document.getElementById("tip");
  const svgName = "http://www.w3.org/2000/svg";

  const show = (lines, x, y) => {
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(6, Math.min(left, innerWidth - box.width - 6))}px`;
    tip.style.top = `${Math.max(6, Math.min(y - box.height / 2, innerHeight - box.height - 6))}px`;
  };
  const hide = () => { tip.hidden = true; };
  const line = (words, colour, value) => {
    const row = document.createElement("div");
    if (colour) {
      const swatch = document.createElement("i");
      swatch.className = `swatch ${colour}`;
      row.append(swatch);
    }
    row.append(words);
    if (value !== undefined) {
      const bold = document.createElement("b");
      bold.textContent = value;
      row.append(bold);
    }
    return row;
  };

  // Charts over rounds: a cross-line at the nearest round and every visible series' value there.
  for (const chart of document.querySelectorAll("svg[data-chart]")) {
    const data = JSON.parse(chart.dataset.chart);
    const plot = chart.querySelector(".plot") || chart;
    const cross = document.createElementNS(svgName, "line");
    cross.setAttribute("class", "cross");
    cross.setAttribute("y2", chart.getAttribute("height"));
    cross.style.display = "none";
    chart.append(cross);
    let current = data.at.length - 1;
    const hidden = (i) => chart.querySelector(`[data-s="${i}"]`)?.classList.contains("off");
    const read = (i) => {
      const box = plot.getBoundingClientRect();
      const at = `${100 * data.at[i]}%`;
      cross.setAttribute("x1", at);
      cross.setAttribute("x2", at);
      cross.style.display = "";
      const rows = data.series.flatMap((s, j) => (s.v[i] === null || hidden(j) ? [] : [line(s.n, s.c, s.v[i])]));
      const area = chart.getBoundingClientRect();
      show([line(`${data.unit || "round"} ${data.x[i]}`), ...rows], box.left + data.at[i] * box.width, area.top + area.height / 2);
    };
    const near = (event) => {
      const box = plot.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width;
      current = data.at.reduce((best, a, i) => (Math.abs(a - at) < Math.abs(data.at[best] - at) ? i : best), 0);
      read(current);
    };
    const leave = () => { cross.style.display = "none"; hide(); };
    chart.addEventListener("pointermove", near);
    chart.addEventListener("pointerdown", near);
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      current = Math.max(0, Math.min(data.at.length - 1, current + step));
      read(current);
    });
  }

  // Legends: a press hides the series in the figure it belongs to.
  for (const key of document.querySelectorAll("button.key")) {
    key.title = "Hide or show";
    key.addEventListener("click", () => {
      const on = key.getAttribute("aria-pressed") === "true";
      key.setAttribute("aria-pressed", String(!on));
      const chart = key.parentElement.nextElementSibling;
      for (const part of chart.querySelectorAll(`[data-s="${key.dataset.s}"]`)) part.classList.toggle("off", on);
    });
  }

  // Grids: the cell's row and column from the place, its value from the stroke under the pointer.
  for (const grid of document.querySelectorAll("svg[data-cells]")) {
    const data = JSON.parse(grid.dataset.cells);
    const plot = grid.querySelector(".plot");
    const read = (event) => {
      const box = plot.getBoundingClientRect();
      const inside = (place, start, size, count) => Math.max(0, Math.min(count - 1, Math.floor(((place - start) / size) * count)));
      const row = data.rows[inside(event.clientY, box.top, box.height, data.rows.length)];
      const column = data.columns[inside(event.clientX, box.left, box.width, data.columns.length)];
      show([line(`${row}, ${column}`), line(event.target.dataset?.v || "none")], event.clientX, event.clientY);
    };
    plot.addEventListener("pointermove", read);
    plot.addEventListener("pointerdown", read);
    plot.addEventListener("pointerleave", hide);
  }

  for (const mark of document.querySelectorAll("[data-tip]")) {
    mark.addEventListener("pointermove", (event) => show([line(mark.dataset.tip)], event.clientX, event.clientY));
    mark.addEventListener("pointerleave", hide);
  }
  addEventListener("scroll", hide, { passive: true });

  // Every chart can be saved: drawn anew as one SVG that needs no style sheet, or as a PNG of that at twice the size.
  const looks = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
    "opacity", "vector-effect", "shape-rendering", "font-family", "font-size", "font-weight", "text-anchor", "overflow"];
  const made = (name, facts) => {
    const element = document.createElementNS(svgName, name);
    for (const [key, value] of Object.entries(facts)) element.setAttribute(key, value);
    return element;
  };
  const dressed = (drawn, at) => {
    const copy = drawn.cloneNode(true);
    const inside = [...copy.querySelectorAll("*")];
    [...drawn.querySelectorAll("*")].forEach((element, i) => {
      const look = getComputedStyle(element);
      if (look.display === "none") return inside[i].remove();
      for (const key of looks) if (look.getPropertyValue(key)) inside[i].setAttribute(key, look.getPropertyValue(key));
      for (const { name } of [...inside[i].attributes]) if (/^(class|style|tabindex|role|aria-|data-)/.test(name)) inside[i].removeAttribute(name);
    });
    const look = getComputedStyle(drawn);
    const box = drawn.getBoundingClientRect();
    const inner = ["Top", "Right", "Bottom", "Left"].map((side) => parseFloat(look[`padding${side}`]) || 0);
    for (const { name } of [...copy.attributes]) if (name !== "viewBox" && name !== "preserveAspectRatio") copy.removeAttribute(name);
    const place = { x: box.left + inner[3] - at.left, y: box.top + inner[0] - at.top, overflow: "visible" };
    const size = { width: box.width - inner[1] - inner[3], height: box.height - inner[0] - inner[2] };
    for (const [key, value] of Object.entries({ ...place, ...size })) copy.setAttribute(key, value);
    return copy;
  };
  const spelt = (node, at) => {
    // A text may run over several lines: its words are put where they stand.
    const look = getComputedStyle(node.parentElement);
    const range = document.createRange();
    const lines = [];
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = range.getBoundingClientRect();
      const line = lines.at(-1);
      if (line && Math.abs(line.box.top - box.top) < 2) line.words.push(word[0]);
      else lines.push({ box, words: [word[0]] });
    }
    return lines.filter((line) => line.box.width).map((line) => {
      const facts = { x: line.box.left - at.left, y: line.box.top - at.top + 0.78 * line.box.height, fill: look.color };
      const text = made("text", { ...facts, "font-family": look.fontFamily, "font-size": look.fontSize, "font-weight": look.fontWeight });
      text.textContent = line.words.join(" ");
      return text;
    });
  };
  const hidden = (element) => element.closest(".save, figcaption, [hidden]") || !element.getClientRects().length;
  const picture = (holder) => {
    const at = holder.getBoundingClientRect();
    const parts = [];
    for (const drawn of holder.querySelectorAll("svg")) if (!drawn.parentElement.closest("svg") && !hidden(drawn)) parts.push(dressed(drawn, at));
    for (const patch of holder.querySelectorAll("i.swatch, i.step")) {
      const box = patch.getBoundingClientRect();
      const facts = { x: box.left - at.left, y: box.top - at.top, width: box.width, height: box.height, fill: getComputedStyle(patch).backgroundColor };
      if (!hidden(patch)) parts.push(made("rect", facts));
    }
    const walker = document.createTreeWalker(holder, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (node.data.trim() && !node.parentElement.closest("svg") && !hidden(node.parentElement)) parts.push(...spelt(node, at));
    }
    const caption = [...holder.children].find((child) => child.tagName === "FIGCAPTION");
    const height = (caption ? caption.getBoundingClientRect().top : at.bottom) - at.top + 4;
    const whole = made("svg", { xmlns: svgName, width: at.width, height, viewBox: `0 0 ${at.width} ${height}` });
    const ground = getComputedStyle(holder).backgroundColor;
    const paper = /, 0\)$|transparent/.test(ground) ? getComputedStyle(document.body).backgroundColor : ground;
    whole.append(made("rect", { width: "100%", height: "100%", fill: paper }), ...parts);
    return { text: new XMLSerializer().serializeToString(whole), width: at.width, height };
  };
  const download = (address, name) => {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  };
  const save = async (holder, kind) => {
    const words = holder.querySelector("h3")?.textContent || "clients";
    const name = `${words.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60)}.${kind}`;
    const { text, width, height } = picture(holder);
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    if (kind === "svg") return download(address, name);
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return download(canvas.toDataURL("image/png"), name);
  };
  for (const holder of document.querySelectorAll("figure, .findings > li")) {
    if (!holder.querySelector("svg")) continue;
    const bar = document.createElement("div");
    bar.className = "save";
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind.toUpperCase();
      button.title = `Save this chart as ${kind.toUpperCase()}`;
      button.addEventListener("click", () => save(holder, kind));
      bar.append(button);
    }
    holder.append(bar);
  }

  // A link into something folded away unfolds it.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    let opened = false;
    const inside = target.querySelector(":scope > details");
    if (inside) inside.open = true;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS" && !at.open) opened = at.open = true;
    if (opened) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
