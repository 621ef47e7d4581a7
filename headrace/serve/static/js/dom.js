// Elements from plain values. Text only ever becomes text nodes: nothing here can inject markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (name === "styles") {
      // Through the object model: a style attribute would need a weaker Content-Security-Policy.
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Replace the children, and give the focus back to the one with the same data-key. */
export function setChildren(node, ...children) {
  const held = node.contains(document.activeElement) ? document.activeElement.closest("[data-key]") : null;
  const key = held && node.contains(held) ? held.dataset.key : null;
  node.replaceChildren(...children.flat().filter(Boolean));
  if (key) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

export function runbookLink(name, text = "What to do") {
  // A name, or the path that the server gives; nothing else becomes a link.
  const safe = /^(?:\/?runbooks\/)?([a-z0-9-]+)$/.exec(name ?? "")?.[1];
  return safe ? el("a", { class: "runbook", href: `runbooks/${safe}`, "data-key": `runbook-${safe}` }, text) : null;
}
