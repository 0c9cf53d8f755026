// A small virtual DOM. Text only ever becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "circle", "line", "g", "text"]);

/** Describes an element. Children are strings, numbers, descriptions, or lists of these; null and false are skipped. */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: flatten(children), key: props?.key };
}

function flatten(children, out = []) {
  for (const child of children) {
    if (Array.isArray(child)) flatten(child, out);
    else if (child !== null && child !== undefined && child !== false && child !== true) {
      out.push(typeof child === "object" ? child : String(child));
    }
  }
  return out;
}

/** Makes the children of an element match the descriptions, and leaves alone what has not changed. */
export function render(parent, children) {
  patchChildren(parent, flatten([children]));
}

function create(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const element = SVG_TAGS.has(node.tag) ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  element.manta = { tag: node.tag, key: node.key, props: {}, listeners: {} };
  patchElement(element, node);
  node.props.created?.(element);
  return element;
}

function patchElement(element, node) {
  const before = element.manta.props;
  for (const name in before) if (!(name in node.props)) setProp(element, name, undefined);
  // The value of a select depends on its options.
  if (!node.props.own) patchChildren(element, node.children);
  for (const name in node.props) {
    if (before[name] !== node.props[name] || name === "value" || name === "checked") setProp(element, name, node.props[name]);
  }
  element.manta.props = node.props;
}

function setProp(element, name, value) {
  if (name === "key" || name === "created" || name === "own") return;
  if (name.startsWith("on")) {
    const event = name.slice(2).toLowerCase();
    if (!(event in element.manta.listeners)) element.addEventListener(event, (e) => element.manta.listeners[event]?.(e));
    element.manta.listeners[event] = value;
  } else if (name === "style") {
    const before = element.manta.props.style || {};
    for (const property in before) if (!value || !(property in value)) element.style.removeProperty(property);
    for (const property in value) {
      if (before[property] !== value[property]) element.style.setProperty(property, value[property]);
    }
  } else if (name === "value" || name === "checked") {
    const text = value ?? (name === "checked" ? false : "");
    if (element[name] !== text) element[name] = text;
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

function matches(element, node) {
  if (typeof node === "string") return element.nodeType === Node.TEXT_NODE;
  return element.manta?.tag === node.tag && element.manta.key === node.key;
}

function patchChildren(parent, nodes) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.manta?.key !== undefined) keyed.set(child.manta.key, child);
  let current = parent.firstChild;
  for (const node of nodes) {
    let found = null;
    if (node.key !== undefined) {
      found = keyed.get(node.key);
      if (found && found.manta.tag !== node.tag) found = null;
    } else if (current && matches(current, node)) found = current;
    if (!found) {
      parent.insertBefore(create(node), current);
      continue;
    }
    if (found === current) current = current.nextSibling;
    else parent.insertBefore(found, current);
    if (typeof node === "string") {
      if (found.data !== node) found.data = node;
    } else patchElement(found, node);
    if (node.key !== undefined) keyed.delete(node.key);
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

/** Returns a function that calls `work` once, in the next frame, however often it is called. */
export function perFrame(work) {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      work();
    });
  };
}

const reasons = new Map();

/** Returns the id of an element with a text, for `aria-describedby`. */
function reasonId(text) {
  if (!reasons.has(text)) {
    const element = document.createElement("span");
    element.id = `reason-${reasons.size}`;
    element.hidden = true;
    element.textContent = text;
    document.body.append(element);
    reasons.set(text, element.id);
  }
  return reasons.get(text);
}

/** Describes a button. With a reason `why` not, it cannot be used, but still be reached by the keyboard, and says the reason. */
export function button({ why, onclick, ...props }, ...children) {
  if (!why) return h("button", { type: "button", ...props, onclick }, children);
  return h("button", { type: "button", ...props, "aria-disabled": "true", "aria-describedby": reasonId(why), title: why, onclick: () => toast(why, "bad") }, children);
}

/** Says something to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Shows a short message for a while. */
export function toast(text, kind = "note") {
  const box = document.getElementById("toasts");
  const element = document.createElement("div");
  element.className = `toast ${kind}`;
  element.setAttribute("role", kind === "bad" ? "alert" : "status");
  element.textContent = text;
  box.append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 12000 : 5000);
}
