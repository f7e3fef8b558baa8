// Builds elements. Every text becomes a text node: names come from tenants, and nothing that they write is markup.

const MAX_TEXT = 2000;

/** What is not visible, or changes the direction of what follows, as an escape; of marks that pile up, the first few. */
export function printable(text) {
  const cut = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
  return cut.replace(/(\p{M}{4})\p{M}+/gu, "$1…").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

/** An element with properties (`class`, attributes, `on…` handlers) and children: elements, texts, lists, or nothing. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : printable(String(value)));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(4)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : printable(String(child)));
  }
}

export function fill(element, ...children) {
  const fragment = document.createDocumentFragment();
  add(fragment, children);
  element.replaceChildren(fragment);
}

export const byId = (id) => document.getElementById(id);

/** Sets a text only if it is another one: what does not change is not laid out again. */
export function say(element, text) {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** A name that a tenant chose: its direction ends with it. */
export function name(text, properties = {}) {
  return el("bdi", properties, text);
}

const FOCUSABLE = "a, button, input, [tabindex]";
const markOf = (element) => [element.tagName, element.id, element.getAttribute("href"), element.getAttribute("aria-label")].join(" ");

/** Runs *change*, which may draw the children of *element* anew; who moves with the keyboard stays where they are. */
export function keepingFocus(element, change) {
  const focused = document.activeElement;
  if (!focused || focused === element || !element.contains(focused)) { change(); return; }
  const mark = markOf(focused), alike = () => [...element.querySelectorAll(FOCUSABLE)].filter((each) => markOf(each) === mark);
  const at = alike().indexOf(focused);
  change();
  if (document.activeElement === focused) return;
  const found = alike();
  (found[at] ?? found.at(-1))?.focus({ preventScroll: true });
}

/** What looks like an element that has been drawn anew; the element itself if it is still there. */
export function successor(element) {
  if (!element || element.isConnected) return element;
  const mark = markOf(element);
  return [...document.querySelectorAll(FOCUSABLE)].find((each) => markOf(each) === mark);
}
