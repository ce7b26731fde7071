// SPDX-License-Identifier: Apache-2.0
// The page shows what /v1/live sends. It keeps nothing but the latest requests and the chosen theme.

import { call, events, keyForm, onKey } from "./api.js";
import { ask } from "./play.js";
import { thumb } from "./thumbs.js";
import { at, bytes, count, el, fill, ms, share } from "./show.js";

const SOURCES = {
  resident: "the P/D had it",
  local: "the Encoder had it",
  store: "taken from the Store",
  joined: "an Encoder made it for another request at the same time",
  encoded: "an Encoder made it",
};
const KEPT = 60;
const requests = new Map(); // by number
let thumbs = false; // the gateway has small pictures
const byId = (id) => document.getElementById(id);

function totals(view) {
  const t = view.totals, store = view.store;
  const fresh = t.sources.encoded || 0, reused = t.images - fresh;
  const tiles = [
    ["requests", count(t.requests), t.failed ? `${count(t.failed)} failed` : "none failed"],
    ["pictures", count(t.images), `${bytes(t.bytes)} of embeddings`],
    ["reused", share(reused, t.images), "of all pictures"],
    ["encodes saved", count(reused), `${count(fresh)} encoded`],
  ];
  if (store) tiles.push(["Store", bytes(store.bytes), `of ${bytes(store.limit_bytes)}, ${count(store.objects)} ${store.objects === 1 ? "object" : "objects"}`]);
  fill(byId("totals"), ...tiles.map(([name, value, more]) =>
    el("dl", {}, el("dt", {}, name), el("dd", {}, value), el("small", {}, more))));
}

function worker(w, more) {
  return el("div", { class: w.up ? "worker up" : "worker" },
    el("b", {}, w.name || "unnamed"), el("span", { class: "dim" }, w.up ? more : w.why));
}

function fleet(view) {
  const column = (title, ...cards) => el("div", { class: "column" }, el("h3", {}, title), ...cards);
  const store = view.store;
  const card = store
    ? el("div", { class: "worker up" }, el("b", {}, `${share(store.bytes, store.limit_bytes)} full`),
      el("span", { class: "dim" }, `${count(store.hits)} hits, ${count(store.misses)} misses`),
      el("div", { class: "meter" }, el("i", { style: `width:${100 * store.bytes / Math.max(1, store.limit_bytes)}%` })))
    : el("p", { class: "note" }, view.store_note);
  const decoding = (view.decodes || []).length > 0;
  const busy = (w) => worker(w, `${w.running || 0} running, ${w.waiting || 0} waiting${w.backend ? ` · ${w.backend}` : ""}`);
  fill(byId("fleet"),
    column("gateway", worker({ name: "this gateway", up: true }, `version ${view.version}`)),
    column("Encoders", ...view.encoders.map(busy)),
    column("Store", card),
    column(decoding ? "Prefill" : "Prefill/Decode", ...view.prefills.map(busy)),
    ...decoding ? [column("Decode", ...view.decodes.map(busy))] : []);
}

// What passes until each point of a trace.
const STAGES = {
  read: "body read", media: "pictures read or fetched", prepare: "P/D and Store asked", delivered: "Encoders at work",
  prefill: "until the first token, or the prompt's end", handoff: "handed to a decode worker", total: "answer",
};
const stage = (name) => `s${Math.max(0, Object.keys(STAGES).indexOf(name))}`;

function bar(r) {
  const end = r.stages.at(-1)?.ms || 1;
  let from = 0;
  const parts = r.stages.map((s) => {
    const width = 100 * Math.max(0, s.ms - from) / end;
    from = Math.max(from, s.ms);
    return el("i", { class: stage(s.name), style: `width:${width}%` });
  });
  return el("span", { class: "bar", title: r.stages.map((s) => `${s.name} ${ms(s.ms)}`).join(", ") }, ...parts);
}

const chip = (source, text) => el("span", { class: `chip ${source}`, title: SOURCES[source] || source }, text);

const picture = (identifier) => (thumbs && identifier ? [thumb(identifier)] : []);

function itemRow(it) {
  return el("tr", {}, el("td", {}, `${it.index + 1}`), el("td", {}, ...picture(it.identifier), el("code", {}, it.identifier.slice(0, 12))),
    el("td", {}, chip(it.source, it.source)), el("td", {}, it.encoder || "P/D itself"), el("td", {}, it.road || ""),
    el("td", { class: "n" }, bytes(it.bytes)), el("td", { class: "n" }, ms(it.queue_ms)),
    el("td", { class: "n" }, ms(it.ms)), el("td", { class: "n" }, ms(it.transfer_ms)), el("td", { class: "n" }, ms(it.wait_ms)));
}

const HEADS = ["picture", "identifier", "source", "by", "road", "size", "queued", "until delivered", "transfer", "waited for"];

function details(r) {
  const heads = HEADS.map((h, i) => el("th", i > 4 ? { class: "n" } : {}, h));
  const rows = r.items.length ? r.items.map(itemRow) : [el("tr", {}, el("td", { colspan: "10", class: "note" }, "no pictures"))];
  const stages = r.stages.map((s) => `${s.name} ${ms(s.ms)}`).join(" · ");
  const over = r.decode ? [`state of ${bytes(r.handoff_bytes)} handed over in ${ms(r.handoff_ms)}`] : [];
  return el("div", { class: "scroll" },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
    el("p", { class: "dim" }, `${[r.prefill || "no P/D", r.decode].filter(Boolean).join(" and ")}, ${r.attempts} ${r.attempts === 1 ? "attempt" : "attempts"} · ${[stages, ...over].join(" · ")}`));
}

// Why a request has no pictures. Of one in work it is not known yet.
function without({ done, status }) {
  if (!done) return "";
  if (status < 400) return "text only";
  if (status === 499) return "its client left";
  return status < 500 ? "refused" : "failed";
}

function request(r, open) {
  const total = r.done ? ms(r.stages.at(-1).ms) : "in work";
  const state = r.done && r.status !== 200 ? el("span", { class: "n failed" }, `${r.status}`) : el("span", { class: "n" }, total);
  const chips = r.items.flatMap((it) => [...picture(it.identifier), chip(it.source, `${it.source} ${it.ms ? ms(it.ms) : ""}`)]);
  const box = el("details", { "data-number": r.number },
    el("summary", {}, el("span", {}, `#${r.number}`), el("span", { class: "when dim" }, at(r.begun)),
      el("span", { class: "chips" }, ...(chips.length ? chips : [el("span", { class: "dim" }, without(r))])), bar(r), state),
    details(r));
  box.open = open;
  return box;
}

// Only what changed is drawn anew, so that an open request stays open and keeps the focus.
function list(changed) {
  const box = byId("requests");
  for (const r of changed) {
    requests.set(r.number, r);
    const old = box.querySelector(`details[data-number="${r.number}"]`);
    if (old) old.replaceWith(request(r, old.open));
    else box.prepend(request(r, false));
  }
  if (requests.size) box.querySelector(":scope > .note")?.remove();
  for (const n of [...requests.keys()].sort((a, b) => a - b).slice(0, -KEPT)) {
    requests.delete(n);
    box.querySelector(`details[data-number="${n}"]`)?.remove();
  }
}

function images(all) {
  if (!all.length) return;
  fill(byId("images"), ...all.slice(0, 12).map((m) => {
    const names = Object.keys(SOURCES).filter((s) => m.sources[s]);
    const mix = names.map((s) => el("i", { class: s, style: `width:${100 * m.sources[s] / m.uses}%` }));
    return el("tr", {}, el("td", {}, ...picture(m.identifier), el("code", { title: m.identifier }, m.identifier.slice(0, 16))), el("td", { class: "n" }, count(m.uses)),
      el("td", {}, el("span", { class: "mix", title: names.map((s) => `${s} ${m.sources[s]}`).join(", ") }, ...mix)),
      el("td", { class: "n" }, m.rows ? count(m.rows) : ""), el("td", { class: "n" }, bytes(m.bytes)), el("td", { class: "n" }, at(m.last)));
  }));
}

function show(view) {
  if (view.first) { // of a connection: the gateway may be another one
    requests.clear();
    fill(byId("requests"), el("p", { class: "note" }, "None yet."));
  }
  thumbs = Boolean(view.thumbnails);
  totals(view);
  fleet(view);
  list(view.requests);
  images(view.images);
  byId("version").textContent = view.version;
}

// WAIT is how long after a stream that ended another one is asked for, in milliseconds.
const WAIT = 3000;
let attempt = 0; // the latest; what an earlier one has to say is of no interest

async function connect() {
  const own = ++attempt;
  const state = (live, text) => {
    if (own !== attempt) return;
    byId("link").className = live ? "live" : "";
    byId("link").textContent = text;
  };
  try {
    const res = await call("v1/live", { cache: "no-store" });
    if (res.status === 401) return state(false, "this gateway asks for an API key");
    if (res.status === 403) return state(false, "this key may ask, but not look at the fleet: that takes an admin's");
    if (res.ok) {
      state(true, "live");
      for await (const e of events(res.body)) {
        if (own !== attempt) return;
        if (e.name === "view") show(e.data);
      }
    }
  } catch { /* the gateway is away */ }
  state(false, "no connection to the gateway, trying again");
  setTimeout(() => { if (own === attempt) connect(); }, WAIT);
}

function theme() {
  const root = document.documentElement, saved = localStorage.getItem("theme");
  if (saved) root.dataset.theme = saved;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

fill(byId("legend"), ...Object.entries(SOURCES).map(([s, text]) => el("span", {}, chip(s, s), ` ${text}`)));
fill(byId("stages"), "time:", ...Object.entries(STAGES).map(([s, text]) =>
  el("span", {}, el("span", { class: "bar" }, el("i", { class: stage(s), style: "width:14px" })), ` ${text}`)));
theme();
keyForm();
onKey(connect);
connect();
ask(byId, SOURCES);
