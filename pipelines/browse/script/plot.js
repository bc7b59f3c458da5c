// The scatter plot: three canvases above each other, for the frame, the points, and what is marked.

const MARGIN = { left: 64, right: 10, top: 10, bottom: 40 };
const plot = document.getElementById("plot");
const layers = ["base", "points", "marks"].map((name) => document.getElementById(name));
const sizes = { width: 0, height: 0, scale: 1 };
let palette = null; // of the style sheet, as [red, green, blue]

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const channels = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  palette = Object.fromEntries(["ink", "soft", "rule", "grey", "first", "second", "third", "focus"].map((name) => [name, channels(`--${name}`)]));
}
const colour = (name, alpha = 1) => `rgb(${palette[name].join(" ")} / ${alpha})`;

function fit(canvas, width, height, scale) {
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

function measurePlot() {
  const { width, height } = plot.getBoundingClientRect();
  Object.assign(sizes, { width, height, scale: Math.min(2, window.devicePixelRatio || 1) });
  for (const canvas of layers) fit(canvas, width, height, sizes.scale);
}

const inner = () => ({
  left: MARGIN.left, top: MARGIN.top,
  width: Math.max(1, sizes.width - MARGIN.left - MARGIN.right), height: Math.max(1, sizes.height - MARGIN.top - MARGIN.bottom),
});

/** Numbers to write along an axis: [place, text]. */
function ticksOf(axis, most) {
  if (axis.steps) {
    const every = Math.ceil(axis.numBins / most);
    return axis.steps.map((value, i) => [(i + 0.5) / axis.numBins, numberText(value, axis.name)]).filter((_, i, all) => i % every === 0 || i === all.length - 1);
  }
  const raw = (axis.high - axis.low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let i = Math.ceil(axis.low / step - 1e-9); i * step <= axis.high + 1e-9 * step; i++) found.push([(i * step - axis.low) / (axis.high - axis.low), (i * step).toFixed(digits)]);
  return found;
}

function drawFrame(x, y) {
  const context = layers[0].getContext("2d");
  const { left, top, width, height } = inner();
  context.clearRect(0, 0, sizes.width, sizes.height);
  context.font = "12px system-ui, sans-serif";
  context.strokeStyle = colour("rule");
  context.fillStyle = colour("soft");
  context.lineWidth = 1;
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const [place, text] of ticksOf(x, Math.max(3, Math.floor(width / 55)))) {
    const at = Math.round(left + place * width) + 0.5;
    if (!x.steps) { context.beginPath(); context.moveTo(at, top); context.lineTo(at, top + height); context.stroke(); }
    context.fillText(text, at, top + height + 6);
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const [place, text] of ticksOf(y, Math.max(3, Math.floor(height / 45)))) {
    const at = Math.round(top + (1 - place) * height) + 0.5;
    if (!y.steps) { context.beginPath(); context.moveTo(left, at); context.lineTo(left + width, at); context.stroke(); }
    context.fillText(text, left - 7, at);
  }
  context.strokeRect(Math.round(left) + 0.5, Math.round(top) + 0.5, Math.round(width), Math.round(height));
  context.fillStyle = colour("ink");
  context.textAlign = "right";
  context.textBaseline = "bottom";
  context.fillText(`${x.label} →`, left + width, sizes.height - 2);
  context.save();
  context.translate(12, top);
  context.rotate(-Math.PI / 2);
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(`${y.label} →`, 0, 0);
  context.restore();
}

const MOST_LAYERS = 15;
/** Packed colours of 0 ... MOST_LAYERS points above each other. */
function shades([red, green, blue], alpha) {
  const found = new Uint32Array(MOST_LAYERS + 1);
  for (let n = 1; n <= MOST_LAYERS; n++) found[n] = ((Math.round(255 * (1 - (1 - alpha) ** n)) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  return found;
}

let counts = null; // how many points lie over a pixel: unselected ones, selected ones, and the last one's verdict
function drawPoints(x, y, selected, verdicts) {
  const { left, top, width, height } = inner();
  const scale = sizes.scale, wide = Math.round(width * scale), high = Math.round(height * scale);
  if (!counts || counts.grey.length !== wide * high) {
    counts = { grey: new Uint8Array(wide * high), lit: new Uint8Array(wide * high), kind: new Uint8Array(wide * high), image: new ImageData(wide, high) };
  } else { counts.grey.fill(0); counts.lit.fill(0); }
  const { grey, lit, kind } = counts;
  const radius = (numPairs <= 3000 ? 3 : numPairs <= 60000 ? 1.6 : 1) * scale;
  const stamp = [];
  const reach = Math.ceil(radius);
  for (let dy = -reach; dy <= reach; dy++) for (let dx = -reach; dx <= reach; dx++) if (dx * dx + dy * dy <= radius * radius) stamp.push(dy * wide + dx);
  const px = x.place, py = y.place;
  for (let i = 0; i < numPairs; i++) {
    if (px[i] !== px[i] || py[i] !== py[i]) continue; // unknown
    const column = Math.round(reach + px[i] * (wide - 1 - 2 * reach)), line = Math.round(reach + (1 - py[i]) * (high - 1 - 2 * reach));
    const at = line * wide + column;
    if (selected[i]) {
      for (let k = 0; k < stamp.length; k++) { const p = at + stamp[k]; if (lit[p] < MOST_LAYERS) lit[p]++; kind[p] = verdicts[i]; }
    } else for (let k = 0; k < stamp.length; k++) { const p = at + stamp[k]; if (grey[p] < MOST_LAYERS) grey[p]++; }
  }
  const out = new Uint32Array(counts.image.data.buffer);
  const dim = shades(palette.grey, numPairs > 60000 ? 0.16 : 0.28);
  const bright = ["first", "second", "third"].map((name) => shades(palette[name], numPairs > 60000 ? 0.35 : 0.55));
  for (let p = 0; p < out.length; p++) out[p] = lit[p] ? bright[kind[p]][lit[p]] : dim[grey[p]];
  const context = layers[1].getContext("2d");
  context.clearRect(0, 0, sizes.width, sizes.height);
  context.putImageData(counts.image, Math.round(left * scale), Math.round(top * scale));
}

/** Where a pair's point lies, in pixels of the plot; null where a number is unknown. */
function pointOf(x, y, pair) {
  const { left, top, width, height } = inner();
  const [a, b] = [x.place[pair], y.place[pair]];
  return Number.isNaN(a) || Number.isNaN(b) ? null : [left + a * width, top + (1 - b) * height];
}

function drawMarks(x, y, pair, dragged) {
  const context = layers[2].getContext("2d");
  const { left, top, width, height } = inner();
  context.clearRect(0, 0, sizes.width, sizes.height);
  const [fromX, toX] = dragged ? dragged.x : x.brush ? placesOf(x, x.brush) : [0, 1];
  const [fromY, toY] = dragged ? dragged.y : y.brush ? placesOf(y, y.brush) : [0, 1];
  if (dragged || x.brush || y.brush) {
    context.strokeStyle = colour("focus");
    context.fillStyle = colour("focus", 0.07);
    const [a, b] = [left + fromX * width, top + (1 - toY) * height];
    context.fillRect(a, b, (toX - fromX) * width, (toY - fromY) * height);
    context.strokeRect(a, b, (toX - fromX) * width, (toY - fromY) * height);
  }
  const point = pair === null ? null : pointOf(x, y, pair);
  if (point) {
    for (const [name, radius, line] of [["ink", 7, 3], ["second", 7, 1.5]]) {
      context.beginPath();
      context.arc(point[0], point[1], radius, 0, 2 * Math.PI);
      context.strokeStyle = colour(name);
      context.lineWidth = line;
      context.stroke();
    }
    context.lineWidth = 1;
  }
}

/** The pair whose point is nearest, within `most` pixels: one with pictures before others, a selected one before the rest. */
function nearest(x, y, at, selected, most) {
  const { left, top, width, height } = inner();
  const best = [null, null, null], least = [most, most, most].map((each) => each * each);
  for (let i = 0; i < numPairs; i++) {
    const dx = left + x.place[i] * width - at[0], dy = top + (1 - y.place[i]) * height - at[1];
    const distance = dx * dx + dy * dy, rank = !selected[i] ? 2 : i < numPictured ? 0 : 1;
    if (distance < least[rank]) [best[rank], least[rank]] = [i, distance];
  }
  return best.find((each) => each !== null) ?? null;
}
