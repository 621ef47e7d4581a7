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

export function setChildren(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
}

/**
 * Make the children look like these new ones, and change only what differs: focus, selection and the place of
 * a screen reader survive. Listeners stay with the old nodes, so they must not hold what can change.
 */
export function patch(node, ...children) {
  const wanted = children.flat().filter(Boolean);
  wanted.forEach((child, n) => {
    const old = node.childNodes[n];
    if (!old) node.append(child);
    else if (isSame(old, child)) update(old, child);
    else old.replaceWith(child);
  });
  while (node.childNodes.length > wanted.length) node.lastChild.remove();
}

function isSame(old, now) {
  return old.nodeName === now.nodeName && old.dataset?.key === now.dataset?.key;
}

function update(old, now) {
  if (now.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const { name, value } of now.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  if (old.style.cssText !== now.style.cssText) old.style.cssText = now.style.cssText;
  patch(old, ...now.childNodes);
}

export function runbookLink(name, text = "What to do") {
  // A name, or the path that the server gives; nothing else becomes a link.
  const safe = /^(?:\/?runbooks\/)?([a-z0-9-]+)$/.exec(name ?? "")?.[1];
  return safe
    ? el("a", { class: "runbook", href: `runbooks/${safe}`, "data-key": `runbook-${safe}` }, text)
    : null;
}
