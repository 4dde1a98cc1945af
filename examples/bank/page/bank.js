// Live updates for the bank's page. Without this script, all forms work and a reload shows news.
"use strict";

const main = document.getElementById("main");
const parser = new DOMParser();
let url = main.dataset.url;
let loading = false, again = false;

// swap replaces the parts of the page that have changed, and keeps the focus. A part in which a
// mouse button is down is replaced later.
function swap(text, kinds) {
  const next = parser.parseFromString(text, "text/html");
  if (!next.getElementById("main")) throw new Error("the response is not the page");
  const focus = document.activeElement?.id;
  for (const part of next.querySelectorAll("[data-swap]")) {
    const here = document.getElementById(part.id);
    if (!here || !kinds.includes(part.dataset.swap) || here.querySelector(":active")) continue;
    if (here.outerHTML !== part.outerHTML) update(here, part);
  }
  if (focus && document.activeElement?.id !== focus) document.getElementById(focus)?.focus({ preventScroll: true });
  connected(stream.readyState === EventSource.OPEN);
  return next;
}

// update gives a part new contents. The part itself stays, so that screen readers announce changes.
function update(here, part) {
  for (const name of here.getAttributeNames()) if (!part.hasAttribute(name)) here.removeAttribute(name);
  for (const { name, value } of part.attributes) here.setAttribute(name, value);
  here.replaceChildren(...part.childNodes);
}

// refresh loads the page again, once at a time.
async function refresh() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    do {
      again = false;
      const from = url;
      const response = await fetch(from, { headers: { Accept: "text/html" } });
      const text = await response.text();
      if (from === url) swap(text, ["live"]);
    } while (again);
  } catch {
    connected(false);
  } finally {
    loading = false;
  }
}

function connected(on) {
  document.documentElement.dataset.stream = on ? "open" : "lost";
  const shown = document.querySelector("#stream span");
  if (shown) shown.textContent = on ? "live" : "no connection";
}

// go shows another address of the page.
function go(address) {
  url = address;
  history.replaceState(null, "", url);
  refresh();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.getAttribute("method") !== "post") return;
  event.preventDefault();
  const button = event.submitter;
  const action = button?.getAttribute("formaction") ?? form.getAttribute("action");
  form.setAttribute("aria-busy", "true");
  try {
    const body = new URLSearchParams(new FormData(form));
    const response = await fetch(action, { method: "POST", body, headers: { Accept: "text/html" } });
    const next = swap(await response.text(), ["live", "post"]);
    url = next.getElementById("main").dataset.url;
    history.replaceState(null, "", url);
    for (const input of next.querySelectorAll(".forms input")) {
      const here = document.getElementById(input.id);
      if ("fresh" in input.dataset || here.value === "") here.value = input.value;
    }
  } catch {
    connected(false); // the form keeps its request ID, so sending it again is safe
  } finally {
    form.removeAttribute("aria-busy");
  }
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "asof") return;
  const slider = event.target;
  const query = new URLSearchParams(new FormData(slider.form));
  if (slider.value === slider.max) query.delete("at");
  go("/?" + query);
});

const stream = new EventSource("/page/stream");
stream.addEventListener("change", refresh);
stream.addEventListener("open", () => connected(true));
stream.addEventListener("error", () => connected(false));
