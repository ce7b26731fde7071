// SPDX-License-Identifier: Apache-2.0
// Calls to the gateway, with an API key where it asks for one. The key stays in this tab, as long as that is open.

const NAME = "afterimage-key";
const told = []; // who wants to know that there is another key

const key = () => sessionStorage.getItem(NAME) || "";

// call is fetch with the key. Where the gateway wants one, or another, the form for it appears.
export async function call(path, options = {}) {
  const headers = key() ? { ...options.headers, authorization: `Bearer ${key()}` } : options.headers;
  const res = await fetch(path, { ...options, headers });
  if (res.status === 401) showForm();
  return res;
}

// events yields what a stream of server-sent events says, as {name, data}; comments are passed over.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const e of whole) {
      const lines = e.split("\n");
      const field = (name) => lines.find((l) => l.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined && data !== "[DONE]") yield { name: field("event") || "message", data: JSON.parse(data) };
    }
  }
}

const form = () => document.getElementById("key");

function showForm() {
  form().hidden = false;
}

// onKey has f called whenever another key was given.
export const onKey = (f) => told.push(f);

export function keyForm() {
  form().addEventListener("submit", (e) => {
    e.preventDefault();
    const field = form().querySelector("input");
    sessionStorage.setItem(NAME, field.value.trim());
    field.value = "";
    form().hidden = true;
    for (const f of told) f();
  });
}
