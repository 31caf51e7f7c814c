"use strict";
// As little of a browser as the explorer's page needs: elements in a tree, canvases that list what is
// drawn on them, a clock that stands still, and an address.

const now = {time: 0, timers: new Map(), next: 1};
const later = (work, delay = 0, ...rest) => { now.timers.set(now.next, {work: () => work(...rest), at: now.time + delay}); return now.next++; };
const forget = timer => now.timers.delete(timer);
function pass(milliseconds) {
  const end = now.time + milliseconds, isDue = ([, {at}]) => at <= end;
  for (let due; (due = [...now.timers].filter(isDue).sort((a, b) => a[1].at - b[1].at)[0]);) {
    now.timers.delete(due[0]);
    now.time = Math.max(now.time, due[1].at);
    due[1].work();
  }
  now.time = end;
}

class Listening {
  listeners = [];
  addEventListener(type, listener) { this.listeners.push([type, listener]); }
  fire(type, properties = {}) {  // here, then in the parents, then in the document
    const event = {type, target: this, preventDefault() { event.defaultPrevented = true; }, stopPropagation() { event.isStopped = true; }, ...properties};
    for (let at = this; at && !event.isStopped; at = at.parentElement ?? (at === document ? null : document)) {
      for (const [each, listener] of at.listeners) if (each === type) listener(event);
    }
    return event;
  }
}

class Element extends Listening {
  childNodes = [];
  style = {};
  dataset = {};
  attributes = {};
  className = "";
  constructor(tag, id = "") { super(); Object.assign(this, {tag, id, parentElement: null, hidden: false, clientWidth: 900, offsetWidth: 60, offsetHeight: 20}); }
  get children() { return this.childNodes.filter(node => node instanceof Element); }
  get firstChild() { return this.childNodes[0] ?? null; }
  get textContent() { return this.childNodes.map(node => node.textContent ?? node).join(""); }
  set textContent(text) { this.childNodes = [String(text)]; }
  get isConnected() { return this.parentElement?.isConnected ?? !this.tag; }
  append(...nodes) {
    this.childNodes.push(...nodes);
    for (const child of this.children) {
      child.parentElement = this;
      if (child.id) elements.set(child.id, child);
    }
  }
  replaceChildren(...nodes) { for (const child of this.children) child.parentElement = null; this.childNodes = []; this.append(...nodes); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name] ?? null; }
  removeAttribute(name) { delete this.attributes[name]; if (name.startsWith("data-")) delete this.dataset[name.slice(5)]; }
  matches(selector) {
    const data = selector.match(/^\[data-(\w+)="(.*)"\]$/);
    if (data) return String(this.dataset[data[1]]) === data[2];
    return selector.startsWith(".") ? this.className.split(" ").includes(selector.slice(1)) : selector === this.tag;
  }
  closest(selector) { return this.matches(selector) ? this : this.parentElement?.closest(selector) ?? null; }
  contains(other) { return other === this || Boolean(other?.parentElement && this.contains(other.parentElement)); }
  querySelectorAll(selector) {
    const all = this.children.flatMap(child => [child, ...child.querySelectorAll("*")]);
    return selector === "*" ? all : all.filter(each => each.matches(selector.split(" ").at(-1)));
  }
  querySelector(selector) { return this.querySelectorAll(selector)[0] ?? null; }
  get classList() {
    const change = (name, isOn) => { this.className = [...new Set(this.className.split(" "))].filter(each => each && each !== name).concat(isOn ? name : []).join(" "); };
    return {add: name => change(name, true), remove: name => change(name, false), toggle: change, contains: name => this.matches(`.${name}`)};
  }
  focus() { document.activeElement = this; this.fire("focusin"); }
  scrollIntoView() {}
  before() {}
  click() { this.fire("click"); }
  getBoundingClientRect() { return {left: 0, top: 0, width: this.clientWidth, height: 0}; }
  get width() { return this.size; }
  set width(size) { this.size = size; this.getContext().drawn.length = 0; }  // of a canvas, which forgets its picture
  getContext() { return this.context ??= new Context(); }
  toBlob(use) { use("blob"); }
}

// What a canvas shows, in the order of drawing: [kind, colour, shape] with the shape where it was moved to.
class Context {
  drawn = [];
  stack = [];
  at = {x: 0, y: 0, angle: 0};
  save() { this.stack.push({...this.at}); }
  restore() { this.at = this.stack.pop(); }
  translate(x, y) { this.at.x += x; this.at.y += y; }
  rotate(angle) { this.at.angle += angle; }
  scale() {}
  setTransform() {}
  clip(path) { this.clipped = path ?? this.box; }
  clearRect() { this.drawn.length = 0; }
  beginPath() {}
  rect(...box) { this.box = box; }
  roundRect(...box) { this.box = box; }
  fillRect(...box) { this.drawn.push(["fill", this.fillStyle, box]); }
  fill(path) { this.drawn.push(["fill", this.fillStyle, path?.d ?? this.box]); }
  stroke(path) { this.drawn.push(["stroke", this.strokeStyle, path?.d ?? this.box, this.lineWidth]); }
  fillText(text, x, y) { this.drawn.push(["text", this.fillStyle, [this.at.x + x, this.at.y + y], text]); }
  drawImage({context}, ...box) { this.drawn.push(...(box.length > 2 ? [["cells", context.image, box]] : context.drawn)); }
  putImageData(image) { this.image = image; }
  createPattern() { return "hatch"; }
  measureText(text) { return {width: text.length * Number(this.font.match(/[\d.]+/)[0]) / 2, actualBoundingBoxAscent: this.textBaseline === "middle" ? 25 : 50}; }
}

// What the engine of JavaScript alone lacks.
// Characters in UTF-8 that are more than a byte (table 3-7 of the Unicode standard), and what remains of one.
const PAIRS = "[\\xc2-\\xdf]", TRIPLES = "(?:\\xe0[\\xa0-\\xbf]|[\\xe1-\\xec\\xee\\xef][\\x80-\\xbf]|\\xed[\\x80-\\x9f])";
const LONGEST = "(?:\\xf0[\\x90-\\xbf]|[\\xf1-\\xf3][\\x80-\\xbf]|\\xf4[\\x80-\\x8f])", REST = "[\\x80-\\xbf]";
const WHOLE = new RegExp(`^(?:${PAIRS}${REST}|${TRIPLES}${REST}|${LONGEST}${REST}{2})$`);
const CHARACTER = new RegExp(`${PAIRS}${REST}|${TRIPLES}${REST}?|${LONGEST}${REST}{0,2}|[\\x80-\\xff]`, "g");
Object.assign(globalThis, {
  Element, window: globalThis, innerWidth: 1280, innerHeight: 800, devicePixelRatio: 1, scrollBy() {},
  setTimeout: later, clearTimeout: forget, requestAnimationFrame: work => later(() => work(now.time), 16), cancelAnimationFrame: forget,
  performance: {now: () => now.time}, localStorage: {setItem() {}}, matchMedia: () => ({matches: false}),
  getComputedStyle: () => ({paddingLeft: "0", paddingRight: "0"}), addEventListener: (...listener) => document.addEventListener(...listener),
  Path2D: class { constructor(d) { this.d = d; } },
  OffscreenCanvas: class extends Element { constructor() { super("canvas"); } },
  ImageData: class { constructor(width, height) { Object.assign(this, {width, height, data: new Uint8ClampedArray(4 * width * height)}); } },
  URLSearchParams: class extends Map { constructor(text) { super(text.split("&").map(pair => pair.split("=").map(decodeURIComponent))); } },
  URL: {createObjectURL: blob => saved.push(blob), revokeObjectURL() {}},
  // The tests' data is not compressed.
  Blob: class { constructor(parts) { this.parts = parts; } stream() { return {pipeThrough: () => this.parts[0]}; } },
  Response: class { constructor(bytes) { this.bytes = bytes; } arrayBuffer() { return this.bytes.buffer; } },
  DecompressionStream: class {},
  MessageChannel: class { port1 = {}; port2 = {postMessage: () => later(() => this.port1.onmessage())}; },
  TextEncoder: class { encode(text) { return Uint8Array.from(unescape(encodeURIComponent(text)), letter => letter.charCodeAt(0)); } },
  TextDecoder: class {
    constructor(label, {ignoreBOM = false} = {}) { this.mark = ignoreBOM ? "" : /^\ufeff/; }
    decode(bytes) { return Array.from(bytes, byte => String.fromCharCode(byte)).join("").replace(CHARACTER, part => WHOLE.test(part) ? decodeURIComponent(escape(part)) : "\ufffd").replace(this.mark, ""); }
  },
});

let document, location, history, saved, elements;  // by id
function openPage(content, address, language) {
  globalThis.navigator = {language};
  const find = id => {
    if (!elements.has(id)) elements.set(id, Object.assign(new Element("", id), {open: id === "weights"}));
    return elements.get(id);
  };
  document = Object.assign(new Listening(), {
    documentElement: new Element("html"), activeElement: null, title: "Title", fonts: [], styleSheets: [], createElement: tag => new Element(tag), getElementById: find,
  });
  elements = new Map();
  document.documentElement.dataset.theme = "light";
  find("data").textContent = content;
  find("story-figure").append(find("story-keys"), find("story-queries"));
  now.timers.clear();
  saved = [];
  location = {hash: address};
  history = {pushed: [], pushState(...change) { this.pushed.push(change[2]); this.replaceState(...change); }, replaceState(state, title, hash) { location.hash = hash; }};
}
const asJson = value => JSON.stringify(value ?? null, (key, part) => ArrayBuffer.isView(part) ? [...part] : typeof part === "number" && !Number.isFinite(part) ? String(part) : part);
