// SPDX-License-Identifier: Apache-2.0
// Small pictures of images, where the gateway has them. They are asked for with the key, which <img> cannot send, and
// kept as long as the tab shows them, so that nothing is asked for twice.

import { call } from "./api.js";
import { el } from "./show.js";

const KEPT = 300;
const AGAIN = 1500; // milliseconds; the gateway makes thumbnails beside requests
const found = new Map(); // identifier: promise of an address

async function load(identifier, again) {
  const res = await call(`v1/thumbnails/${identifier}`, { cache: "no-store" });
  if (res.ok) return URL.createObjectURL(await res.blob());
  if (!again) return null;
  await new Promise((r) => setTimeout(r, AGAIN));
  return load(identifier, false);
}

function forget() {
  const [first, address] = found.entries().next().value;
  found.delete(first);
  address.then((url) => url && URL.revokeObjectURL(url));
}

// thumb is a picture that appears when it is there.
export function thumb(identifier) {
  const img = el("img", { class: "thumb", alt: "", hidden: "" });
  if (!found.has(identifier)) {
    found.set(identifier, load(identifier, true).catch(() => null));
    if (found.size > KEPT) forget();
  }
  const address = found.get(identifier);
  address.then((url) => {
    if (!url) return found.delete(identifier); // to be asked for again with the next use
    img.src = url;
    img.hidden = false;
  });
  return img;
}
