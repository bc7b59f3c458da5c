// What the page holds: numbers as typed arrays, one entry for every pair; pairs of a group follow each other.

const started = performance.now();
const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const NO_CLASS = 65535;
const MOST_VALUES = 14; // an axis of so many different values is drawn as steps, not as a line

function unpack({ kind, base64 }) {
  if (Uint8Array.fromBase64) return new KINDS[kind](Uint8Array.fromBase64(base64).buffer);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[kind](bytes.buffer);
}

const rowOf = unpack(data.rows); // of a group
const places = unpack(data.places);
const classOf = unpack(data.classes); // of a row
const boxes = unpack(data.boxes);
const sources = unpack(data.sources);
const chosen = data.chosen ? unpack(data.chosen) : null;
const runOf = data.run_of ? unpack(data.run_of) : null; // of a group
const similarities = data.similarities ? unpack(data.similarities) : null;
const numGroups = rowOf.length;
const perGroup = data.pair_index.length;
const numPairs = numGroups * perGroup;
const numViews = data.views_per_group;
const numPictured = data.views.length * perGroup; // the first pairs have pictures
const reading = data.reading
  ? { ...data.reading, ...Object.fromEntries(["weights", "centres", "values", "below"].map((name) => [name, unpack(data.reading[name])])) }
  : null;

const groupOf = (pair) => Math.floor(pair / perGroup);
const keyOf = (pair) => data.keys[rowOf[groupOf(pair)]];

/** A number in [0, 1) that depends on two whole numbers alone: the jitter of steps, and a fixed random order. */
function scatter(i, salt) {
  let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
  return ((h ^ (h >>> 16)) >>> 0) / 4294967296;
}

/** Sets what an axis shows of its values: where each lies (0 ... 1, NaN: unknown), its bin, and how many a bin has. */
function lay(axis, number) {
  const { values } = axis;
  let low = Infinity, high = -Infinity;
  const different = new Set();
  for (let i = 0; i < numPairs; i++) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
    if (different.size <= MOST_VALUES) different.add(value);
  }
  axis.steps = null;
  if (axis.name === "level") axis.steps = Array.from({ length: data.num_exits + 1 }, (_, i) => i + 1);
  else if (axis.name === "noise" && different.size <= MOST_VALUES) axis.steps = [...different].sort((a, b) => a - b);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  Object.assign(axis, { low, high, numBins: axis.steps ? axis.steps.length : 32 });
  axis.place = new Float32Array(numPairs);
  axis.bin = new Uint8Array(numPairs).fill(255);
  axis.counts = new Uint32Array(axis.numBins);
  const stepOf = axis.steps ? new Map(axis.steps.map((value, i) => [value, i])) : null;
  for (let i = 0; i < numPairs; i++) {
    const value = values[i];
    if (Number.isNaN(value)) { axis.place[i] = NaN; continue; }
    const bin = stepOf ? stepOf.get(value) : Math.min(axis.numBins - 1, Math.floor(((value - low) / (high - low)) * axis.numBins));
    axis.bin[i] = bin;
    axis.counts[bin]++;
    axis.place[i] = stepOf ? (bin + 0.5 + 0.74 * (scatter(i, number) - 0.5)) / axis.numBins : (value - low) / (high - low);
  }
}

const axes = data.axes.map((axis, number) => ({ ...axis, number, values: unpack(axis.values), brush: null }));
axes.forEach(lay);
const axisOf = Object.fromEntries(axes.map((axis) => [axis.name, axis]));

/** A level in a sentence: L + 1 is that of pairs that no exit recognises. */
const levelText = (value) => (value > data.num_exits ? `${value} (no exit recognises it)` : String(value));

/** The range of values between two places (0 ... 1) of an axis; whole steps where it has them. */
function valuesBetween(axis, from, to) {
  const [a, b] = [Math.max(0, Math.min(from, to)), Math.min(1, Math.max(from, to))];
  if (!axis.steps) return [axis.low + a * (axis.high - axis.low), axis.low + b * (axis.high - axis.low)];
  const last = axis.numBins - 1;
  return [axis.steps[Math.min(last, Math.floor(a * axis.numBins))], axis.steps[Math.min(last, Math.floor(b * axis.numBins))]];
}

/** Where the ends of a brush lie on its axis, 0 ... 1. */
function placesOf(axis, [from, to]) {
  if (!axis.steps) return [from, to].map((value) => (value - axis.low) / (axis.high - axis.low));
  const first = axis.steps.findIndex((value) => value >= from);
  const inside = axis.steps.filter((value) => value >= from && value <= to).length;
  return first < 0 ? [1, 1] : [first / axis.numBins, (first + inside) / axis.numBins];
}

function numberText(value, name) {
  if (Number.isNaN(value)) return "–";
  if (name === "level") return value > data.num_exits ? "none" : String(value);
  if (name === "noise") return String(Math.round(value));
  return value.toFixed(3);
}
