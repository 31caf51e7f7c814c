// Two positions on the four dials of d_model = 8: the angle between them does not depend on the
// first position.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const SVG = "http://www.w3.org/2000/svg";
  const COLORS = { first: "#0072b2", second: "#e69f00" };
  const SIZE = 100, RADIUS = 40, ARC = 20;
  const speeds = [1, 0.1, 0.01, 0.001]; // angle per position: 1 / 10000^(2i / 8)
  const root = document.getElementById("widget-rotation");
  const add = (parent, name, attributes = {}, text = "") => {
    const isDrawing = name === "svg" || parent.namespaceURI === SVG;
    const element = isDrawing ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return parent.appendChild(element);
  };
  const slider = (label, max, value) => {
    const line = add(root, "div");
    const box = add(line, "label", { style: "display:flex;flex-wrap:wrap;gap:0.5em" });
    add(box, "span", { style: "min-width:4.5em" }, label);
    const input = add(box, "input", { type: "range", min: 0, max, step: 1, value });
    input.style.flex = "1 1 8em";
    const output = add(box, "output", { style: "min-width:3ch" });
    input.addEventListener("input", () => draw());
    return { input, output };
  };
  const position = slider(_("position"), 100, 3);
  const offset = slider(_("offset k"), 20, 2);
  const frame = add(root, "div");
  frame.style.cssText =
    "display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5em,1fr));gap:0.5em;margin-top:1em";
  const dials = speeds.map((speed, index) => {
    const cell = add(frame, "div", { style: "text-align:center" });
    add(cell, "div", {}, _(`dial ${index}`));
    const picture = add(cell, "svg", {
      viewBox: `${-SIZE / 2} ${-SIZE / 2} ${SIZE} ${SIZE}`,
      "aria-hidden": "true",
      style: "width:100%;max-width:9em",
    });
    add(picture, "circle", {
      r: RADIUS,
      style: "fill:var(--figure-panel);stroke:var(--figure-muted);stroke-width:1",
    });
    const arc = add(picture, "path", { style: "fill:none;stroke:var(--figure-ink);stroke-width:2" });
    const hands = Object.values(COLORS).map(color => ({
      line: add(picture, "line", { x1: 0, y1: 0, stroke: color, "stroke-width": 4 }),
      tip: add(picture, "circle", { r: 5, fill: color }),
    }));
    return { speed, arc, hands, angle: add(cell, "div"), features: add(cell, "small") };
  });
  const legend = add(root, "p", { style: "margin:0.5em 0 0" });
  const parts = Object.values(COLORS).map(color => {
    const part = add(legend, "span", { style: "white-space:nowrap;margin-right:1.5em" });
    add(part, "span", {
      "aria-hidden": "true",
      style: `display:inline-block;width:0.8em;height:0.8em;border-radius:50%;background:${color}`,
    });
    return add(part, "span");
  });
  const text = _("Below each dial: the angle between the hands, and (sine, cosine) of the first.");
  add(legend, "span", { style: "display:inline-block" }, text);

  // The hand begins at the top and turns clockwise: x is the sine, y (upwards) is the cosine.
  const tipOf = (angle, radius) => [radius * Math.sin(angle), -radius * Math.cos(angle)];
  const draw = () => {
    const start = Number(position.input.value);
    const step = Number(offset.input.value);
    position.output.textContent = start;
    offset.output.textContent = step;
    parts[0].textContent = ` ${_("position")} ${start}`;
    parts[1].textContent = ` ${_("position")} ${start + step}`;
    for (const { speed, arc, hands, angle, features } of dials) {
      [start, start + step].forEach((place, index) => {
        const [x, y] = tipOf(place * speed, RADIUS);
        const { line, tip } = hands[index];
        line.setAttribute("x2", x);
        line.setAttribute("y2", y);
        tip.setAttribute("cx", x);
        tip.setAttribute("cy", y);
      });
      const turned = (step * speed) % (2 * Math.PI);
      const [x, y] = tipOf(start * speed, ARC);
      const [endX, endY] = tipOf(start * speed + turned, ARC);
      const isLarge = turned > Math.PI ? 1 : 0;
      arc.setAttribute("d", `M ${x} ${y} A ${ARC} ${ARC} 0 ${isLarge} 1 ${endX} ${endY}`);
      angle.textContent = `${((step * speed * 180) / Math.PI).toFixed(1)}°`;
      const tip = [Math.sin, Math.cos].map(feature => feature(start * speed).toFixed(2));
      features.textContent = `(${tip.join(", ")})`;
    }
  };
  draw();
})();
