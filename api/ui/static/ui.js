// Live updates and keys. Pages work without this file: it only asks for them again and moves the focus.
"use strict";
(() => {
  const EVENTS = ["changed", "turn-settled", "parked", "decided", "delivered", "park-message", "state-enter", "state-leave",
    "advance", "agent-text", "tool-called", "tool-result", "tool-blocked", "raised", "state-error-routed", "variables-set",
    "title-set", "model-usage", "sub-workflow-start", "sub-workflow-result", "code-result", "grader-result", "warning"];
  let timer = null, asking = false, again = false;

  // Someone who is writing keeps what they write; everything else is drawn anew.
  const inUse = (part) => part.contains(document.activeElement) && part !== document.activeElement
    || [...part.querySelectorAll("textarea")].some((field) => field.value !== field.defaultValue);

  const openDetails = (part) => new Set([...part.querySelectorAll("details")].flatMap((d, i) => d.open ? [i] : []));

  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.pathname.replace(/\/(decide|reply|redrive)$/, "") + location.search,
        { headers: { accept: "text/html" }, redirect: "error" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
        if (!other || part.innerHTML === other.innerHTML) continue;
        if (part.dataset.live === "decision") {
          const same = part.querySelector("[name=park]")?.value === other.querySelector("[name=park]")?.value;
          if (same && inUse(part)) continue;
        } else if (inUse(part) && !part.matches("[data-live=queue]")) continue;
        const open = openDetails(part);
        const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        part.replaceChildren(...other.childNodes);
        part.querySelectorAll("details").forEach((d, i) => { if (open.has(i)) d.open = true; });
        if (focused) [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused)?.focus();
      }
      const count = document.getElementById("waiting"), now = fresh.getElementById("waiting");
      if (count && now) count.replaceChildren(...now.childNodes);
      else if (count) count.remove();
      else if (now) document.querySelector("nav [data-go=i]")?.append(" ", now);
      if (fresh.title) document.title = fresh.title;
    } catch { /* the next event asks again */ } finally {
      asking = false;
      if (again) { again = false; soon(); }
    }
  }
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, 250); };

  function follow(address) {
    const source = new EventSource(address);
    const line = document.querySelector("[data-stream]"), words = document.querySelector("[data-stream-text]");
    for (const name of EVENTS) source.addEventListener(name, () => {
      if (line && (name === "agent-text" || name === "turn-settled")) { line.hidden = true; words.textContent = ""; }
      soon();
    });
    source.addEventListener("agent-text-delta", (event) => {
      if (!line) return;
      line.hidden = false;
      words.textContent = (words.textContent + String(JSON.parse(event.data).text ?? JSON.parse(event.data).delta ?? "")).slice(-2000);
    });
    source.addEventListener("problem", () => source.close());
    addEventListener("pagehide", () => source.close());
  }
  for (const part of document.querySelectorAll("[data-events]")) follow(part.dataset.events);
  for (const part of document.querySelectorAll("[data-changes]")) follow(part.dataset.changes);

  // A wide graph is shown from where the session stands.
  const at = document.querySelector(".graph .at"), box = document.querySelector(".graph");
  if (at && box) {
    const node = at.getBoundingClientRect(), frame = box.getBoundingClientRect();
    box.scrollLeft += node.left + node.width / 2 - frame.left - frame.width / 2;
    box.scrollTop += node.top + node.height / 2 - frame.top - frame.height / 2;
  }

  // A form is sent once.
  addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "1";
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));

  // Keys: g and a letter goes to a page, j and k along a list, / searches, c comments, a number picks a way (Enter takes it).
  let going = false;
  function step(by) {
    const rows = [...document.querySelectorAll("a.row")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
  }
  function help() {
    let box = document.querySelector("dialog");
    if (!box) {
      box = document.createElement("dialog");
      box.setAttribute("aria-label", "Keys");
      const list = document.createElement("dl");
      for (const [key, what] of [["g i, g s, g t, g d", "inbox, sessions, schedules, dead letters"], ["j, k", "next, previous in a list; Enter opens"],
        ["/", "search"], ["c", "comment on a decision"], ["1 … 9", "go to that way of a decision; Enter takes it"], ["Esc", "close this"]]) {
        const term = document.createElement("dt"), text = document.createElement("dd"), kbd = document.createElement("kbd");
        kbd.textContent = key; term.append(kbd); text.textContent = what; list.append(term, text);
      }
      box.append(list);
      document.body.append(box);
    }
    box.showModal();
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const key = event.key;
    if (going) {
      going = false;
      const link = document.querySelector(`nav [data-go="${CSS.escape(key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const target = key === "/" ? document.querySelector("[data-search]") : key === "c" ? document.getElementById("comment")
      : /^[1-9]$/.test(key) ? document.querySelector(`[data-way="${key}"]`) : null;
    if (target) { event.preventDefault(); target.focus(); target.scrollIntoView({ block: "nearest" }); }
    else if (key === "g") going = true;
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "?") help();
  });
})();
