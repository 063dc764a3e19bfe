"use strict";
// The page reads well without this. Here: hovering reads values, legends hide series, a copy button.
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
