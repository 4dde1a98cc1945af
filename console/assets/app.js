// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("has-js");
  const find = (selector, from) => (from || document).querySelector(selector);
  const all = (selector, from) => Array.from((from || document).querySelectorAll(selector));

  // Times are rendered in UTC. The browser shows them in its own zone if the user prefers it.
  const local = () => { try { return localStorage.getItem("refold-times") === "local"; } catch { return false; } };
  const pad = (n, digits = 2) => String(n).padStart(digits, "0");
  const day = (at) => at.getFullYear() + "-" + pad(at.getMonth() + 1) + "-" + pad(at.getDate());
  const clock = (at) => pad(at.getHours()) + ":" + pad(at.getMinutes()) + ":" + pad(at.getSeconds());
  function times(from) {
    for (const t of all("time[data-format]", from)) {
      if (!t.dataset.utc) t.dataset.utc = t.textContent;
      const at = new Date(t.getAttribute("datetime"));
      t.textContent = !local() ? t.dataset.utc : t.dataset.format === "clock" ? clock(at) : day(at) + " " + clock(at);
      t.title = t.getAttribute("datetime");
    }
    for (const f of all("input[type=datetime-local]", from)) {
      if (f.dataset.utc === undefined) f.dataset.utc = f.defaultValue;
      const at = new Date(f.dataset.utc + "Z");
      f.value = local() && f.dataset.utc ? day(at) + "T" + clock(at) : f.dataset.utc;
      find(".zone", f.closest("label")).textContent = local() ? "local" : "UTC";
    }
    const button = find("#tz");
    if (button) button.textContent = local() ? "Times: local" : "Times: UTC";
  }

  // Requests contain UTC.
  document.addEventListener("input", (e) => {
    const f = e.target;
    if (f.type === "datetime-local") f.dataset.utc = local() && f.value ? new Date(f.value).toISOString().slice(0, 19) : f.value;
  });
  document.addEventListener("formdata", (e) => {
    for (const f of all("input[type=datetime-local]", e.target)) e.formData.set(f.name, f.dataset.utc);
  });

  // Charts.
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  function charts(from) {
    for (const figure of all(".chart[data-points]", from)) {
      const plot = find(".plot", figure);
      if (!plot || plot.firstChild || !window.uPlot || !plot.clientWidth) continue;
      const points = JSON.parse(figure.dataset.points);
      if (points[0].length < 2) continue; // a single point has no scale
      new uPlot({
        width: plot.clientWidth, height: plot.clientHeight, legend: { show: false },
        cursor: { y: false, points: { size: 5 } }, padding: [8, 20, 0, 0],
        scales: { x: { range: (u, min, max) => [Math.min(min, max - 30), max] }, y: { range: (u, min, max) => [Math.min(0, min || 0), Math.max(max || 0, 1) * 1.08] } },
        axes: [
          { size: 20, stroke: colour("--muted"), grid: { show: false }, ticks: { show: false }, font: "10px system-ui, sans-serif", space: 70,
            values: (u, values) => values.map((v) => { const d = new Date(v * 1000), h = local() ? d.getHours() : d.getUTCHours(), m = local() ? d.getMinutes() : d.getUTCMinutes(), s = d.getUTCSeconds(); return pad(h) + ":" + pad(m) + (s ? ":" + pad(s) : ""); }) },
          { size: 38, stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "10px system-ui, sans-serif", space: 28,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8, 1e9],
            values: (u, values) => values.map((v) => v >= 1e6 ? v / 1e6 + "M" : v >= 1e3 ? v / 1e3 + "k" : String(v)) },
        ],
        series: [{}, { stroke: colour("--accent"), width: 1.5, fill: colour("--accent-soft"), points: { show: false } }],
      }, points, plot);
    }
  }

  // A swap replaces elements. Unfolded elements stay unfolded, and a shard that changes its node
  // moves to its new place.
  let before = null;
  function remember(part) {
    before = { open: all("details[id][open]", part).map((d) => d.id), shut: all("details[id]:not([open])", part).map((d) => d.id), cells: new Map(), focus: document.activeElement && document.activeElement.id };
    if (part.hasAttribute("data-flip")) {
      for (const c of all("[data-shard]", part)) before.cells.set(c.dataset.shard, { node: c.dataset.node, box: c.getBoundingClientRect() });
    }
  }
  function restore(part) {
    unfold(part);
    if (!before) return;
    for (const id of before.open) { const d = document.getElementById(id); if (d) d.open = true; }
    for (const id of before.shut) { const d = document.getElementById(id); if (d) d.open = false; }
    if (before.focus && document.activeElement === document.body) { const f = document.getElementById(before.focus); if (f) f.focus({ preventScroll: true }); }
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
      for (const c of all("[data-shard]", part)) {
        const old = before.cells.get(c.dataset.shard);
        if (!old || old.node === c.dataset.node) continue;
        const now = c.getBoundingClientRect();
        c.classList.add("moved");
        c.animate([{ transform: `translate(${old.box.left - now.left}px, ${old.box.top - now.top}px)` }, { transform: "none" }], { duration: 700, easing: "cubic-bezier(.2,.7,.2,1)" })
          .finished.then(() => setTimeout(() => c.classList.remove("moved"), 800), () => {});
      }
    }
    before = null;
  }
  // A page that is unfolded also unfolds the parts that it loads later.
  let unfolded = false;
  const json = "details.event, details.j";
  function unfold(part) {
    if (unfolded) for (const d of all(json, part)) d.open = true;
  }
  const fresh = (part) => { times(part); charts(part); };

  // A stream that ends connects again. The extension for streams would log each end as an error of the page.
  function connected(yes) {
    document.body.classList.toggle("stale", !yes);
    const text = yes ? "" : "Disconnected. The page shows the last known state until the console answers again.", line = find("#disconnected");
    if (line && line.textContent !== text) line.textContent = text;
  }
  if (window.htmx) htmx.createEventSource = (url) => {
    const listeners = [];
    let source = null, timer = 0, pause = 500, closed = false, last = "";
    const connect = () => {
      const from = new URL(url, location.href);
      if (last) from.searchParams.set("after", last); // the browser sends the last ID only if it connects again itself
      source = new EventSource(from);
      source.addEventListener("live", (e) => { last = e.lastEventId || last; });
      for (const [name, listener] of listeners) source.addEventListener(name, listener);
      source.onopen = () => { pause = 500; };
      source.onerror = () => {
        if (closed) return;
        connected(false);
        if (source.readyState !== EventSource.CLOSED) return; // the browser connects again
        timer = setTimeout(connect, pause);
        pause = Math.min(2 * pause, 30000);
      };
    };
    connect();
    return {
      addEventListener(name, listener) { listeners.push([name, listener]); source.addEventListener(name, listener); },
      removeEventListener(name, listener) {
        for (let i = listeners.length - 1; i >= 0; i--) if (listeners[i][0] === name && listeners[i][1] === listener) listeners.splice(i, 1);
        source.removeEventListener(name, listener);
      },
      close() { closed = true; clearTimeout(timer); source.close(); },
    };
  };
  document.addEventListener("htmx:sseBeforeMessage", (e) => {
    // A pointer that is down or a selected text would be lost.
    if (e.target.id === "live" && (pressed || paused)) { skipped = e.detail.data; e.preventDefault(); return; }
    remember(e.target);
  });
  document.addEventListener("htmx:sseMessage", (e) => { if (e.target.id === "live") skipped = ""; restore(e.target); fresh(e.target); connected(true); });
  let pressed = false, paused = false, skipped = "";
  addEventListener("pointerdown", () => { pressed = true; }, true);
  const released = () => { pressed = false; setTimeout(catchUp, 300); };
  addEventListener("pointerup", released, true);
  addEventListener("pointercancel", released, true);
  addEventListener("blur", released);

  // A paused page keeps its part until it is resumed.
  document.addEventListener("click", (e) => {
    const pause = e.target.closest("[data-pause]");
    if (!pause) return;
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    catchUp();
  });
  function catchUp() {
    const part = find("#live");
    if (paused || pressed || !skipped || !part) return;
    const text = skipped;
    skipped = "";
    remember(part);
    htmx.swap(part, text, { swapStyle: "innerHTML" });
    restore(part);
    fresh(part);
  }

  // The slider of an entity. The range and the number show the same event.
  const slider = find("[data-slider]");
  if (slider) {
    const range = find("#range"), at = find("#at");
    const go = (n) => {
      range.value = at.value = Math.min(Math.max(n, +range.min), +range.max);
      range.dispatchEvent(new Event("input", { bubbles: true }));
    };
    slider.addEventListener("input", (e) => {
      if (e.target === range) at.value = range.value;
      if (e.target === at && at.value) range.value = at.value;
      mark();
    }, true);
    const mark = () => {
      for (const row of all("#history-rows > li[data-nr]")) row.classList.toggle("current", row.dataset.nr === at.value);
      find(".filters [name=at]").value = at.value; // a filter keeps the event
    };
    document.addEventListener("htmx:configRequest", (e) => { if (e.target === slider && !at.value) e.preventDefault(); });
    document.addEventListener("htmx:afterSwap", (e) => { if (e.target.id === "moment") find("#permalink").href = location.pathname + location.search; else mark(); });
    document.addEventListener("htmx:replacedInHistory", () => { find("#permalink").href = location.pathname + location.search; });
    document.addEventListener("click", (e) => {
      const step = e.target.closest("[data-step]"), jump = e.target.closest("[data-at]:is(a)");
      if (e.ctrlKey || e.metaKey || e.shiftKey) return;
      if (step) { e.preventDefault(); go(+range.value + +step.dataset.step); }
      if (jump) { e.preventDefault(); go(+jump.dataset.at); }
    });
  }

  // Confirmations appear in a dialog.
  const dialog = find("#dialog");
  document.addEventListener("htmx:afterSwap", (e) => {
    if (e.target.id === "dialog-body" && dialog && !dialog.open) dialog.showModal();
    unfold(e.target);
    fresh(e.target);
  });
  document.addEventListener("click", (e) => {
    const close = e.target.closest("[data-close]");
    if (close && dialog && dialog.open && dialog.contains(close)) { e.preventDefault(); dialog.close(); }
    if (e.target.id === "tz") { try { localStorage.setItem("refold-times", local() ? "utc" : "local"); } catch { /* the choice is lost with the page */ } times(); }
    const button = e.target.closest("[data-unfold]");
    if (button) {
      unfolded = !unfolded;
      for (const d of all(json, find("#main"))) d.open = unfolded;
      button.setAttribute("aria-pressed", String(unfolded));
    }
  });

  // The keyboard.
  let prefix = 0;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=range]), select, textarea") || document.querySelector("dialog[open]")) return;
    if (prefix && Date.now() - prefix < 1500) {
      prefix = 0;
      const to = find(`#nav a[data-key="${CSS.escape(e.key)}"]`);
      if (to) { e.preventDefault(); to.click(); }
      return;
    }
    const press = (selector) => { const b = find(selector); if (b) { e.preventDefault(); b.click(); } };
    switch (e.key) {
      case "g": prefix = Date.now(); break;
      case "/": {
        const field = find("input[type=search]"), folded = field && field.closest("details");
        if (folded) folded.open = true;
        if (field) { e.preventDefault(); field.focus(); field.select(); }
        break;
      }
      case "?": { const k = find("#keys"); if (k) { e.preventDefault(); k.showModal(); } break; }
      case "u": press("[data-unfold]"); break;
      case "ArrowLeft": if (e.target.type !== "range") press("#previous"); break;
      case "ArrowRight": if (e.target.type !== "range") press("#next"); break;
    }
  });
  fresh(document);
})();
