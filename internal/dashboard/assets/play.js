// SPDX-License-Identifier: Apache-2.0
// Asks the gateway about a picture, as any client would, and says where its embedding came from.

import { call, events } from "./api.js";
import { el, ms } from "./show.js";

const dataURL = (file) => new Promise((resolve, reject) => {
  const r = new FileReader();
  r.onload = () => resolve(r.result);
  r.onerror = () => reject(r.error);
  r.readAsDataURL(file);
});

async function post(url, question) {
  const content = [{ type: "image_url", image_url: { url } }, { type: "text", text: question }];
  const res = await call("v1/chat/completions", {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ stream: true, max_tokens: 64, temperature: 0, messages: [{ role: "user", content }] }),
  });
  if (res.ok) return res;
  const said = await res.json().catch(() => null);
  throw new Error(said?.error?.message || `the gateway answered ${res.status}`);
}

async function answer(res, show) {
  let text = "";
  for await (const { data: chunk } of events(res.body)) {
    if (chunk.error) throw new Error(chunk.error.message);
    text += chunk.choices?.[0]?.delta?.content || "";
    show(text);
  }
  const trace = await call(`v1/traces/${res.headers.get("X-Afterimage-Trace")}`);
  return trace.ok ? trace.json() : null;
}

function said(trace, sources) {
  const it = trace?.items?.[0];
  if (!it) return "answered";
  const by = it.encoder ? ` (${it.encoder}, ${ms(it.ms)})` : "";
  const first = trace.stages.find((s) => s.name === "prefill");
  return `${it.source}: ${sources[it.source] || ""}${by}; ${first ? `first token after ${ms(first.ms)}` : ""}`;
}

export function ask(byId, sources) {
  let file = null;
  const choose = (f) => {
    if (!f) return;
    file = f;
    const old = byId("preview").src;
    if (old) URL.revokeObjectURL(old);
    byId("preview").src = URL.createObjectURL(f);
    byId("preview").hidden = false;
    byId("drop-text").textContent = f.name;
    byId("ask").disabled = false;
    byId("asked").replaceChildren();
  };
  const drop = byId("drop");
  byId("file").addEventListener("change", (e) => choose(e.target.files[0]));
  drop.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") byId("file").click(); });
  drop.addEventListener("dragover", (e) => { e.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (e) => { e.preventDefault(); drop.classList.remove("over"); choose(e.dataTransfer.files[0]); });

  byId("play").addEventListener("submit", async (e) => {
    e.preventDefault();
    const out = byId("answer"), button = byId("ask");
    button.disabled = true;
    out.className = "";
    out.textContent = "…";
    try {
      const trace = await answer(await post(await dataURL(file), byId("question").value), (text) => { out.textContent = text; });
      byId("asked").append(el("li", {}, said(trace, sources)));
    } catch (err) {
      out.className = "failed";
      out.textContent = err.message;
    }
    button.disabled = false;
    button.textContent = "Ask again";
  });
}
