// SPDX-License-Identifier: Apache-2.0
// Numbers and nodes. Text always goes in as text, so that no name can bring markup along.

export const count = (n) => (n || 0).toLocaleString("en");
export const share = (n, of) => of ? `${(100 * n / of).toFixed(n && n < of ? 1 : 0)} %` : "–";

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (n = n || 0; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function ms(n) {
  if (!n || n < 0) return "0 ms";
  if (n >= 10000) return `${(n / 1000).toFixed(1)} s`;
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ms`;
}

export const at = (time) => new Date(time).toLocaleTimeString("en-GB");

export function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k === "style") e.style.cssText = v; // allowed by the page's policy, the attribute is not
    else e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

export const fill = (e, ...children) => e.replaceChildren(...children);
