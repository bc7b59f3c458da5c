// A histogram of every axis: all pairs grey, the selected ones in colour; drag over it, or type its ends, to brush.

const histograms = new Map();

function makeHistogram(axis, changed) {
  const figure = document.createElement("figure");
  figure.className = "histogram";
  const caption = document.createElement("figcaption");
  caption.textContent = axis.label;
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `histogram of ${axis.label}; the fields below set the range`);
  const range = document.createElement("div");
  range.className = "range";
  const ends = ["from", "to"].map((word) => {
    const input = document.createElement("input");
    Object.assign(input, { type: "number", step: "any", placeholder: word });
    input.setAttribute("aria-label", `${axis.label}, ${word}`);
    input.addEventListener("change", () => {
      const [from, to] = ends.map((end) => end.value.trim());
      axis.brush = from === "" && to === "" ? null : [from === "" ? -Infinity : Number(from), to === "" ? Infinity : Number(to)];
      changed(axis);
    });
    return input;
  });
  range.append(ends[0], "–", ends[1]);
  figure.append(caption, canvas, range);
  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  };
  let start = null;
  canvas.addEventListener("pointerdown", (event) => { start = placeOf(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (start === null || Math.abs(placeOf(event) - start) < 0.01) return;
    axis.brush = valuesBetween(axis, start, placeOf(event));
    changed(axis);
  });
  const end = (event) => {
    if (start !== null && Math.abs(placeOf(event) - start) < 0.01) {
      axis.brush = axis.steps && !axis.brush ? valuesBetween(axis, start, start) : null;
      changed(axis);
    }
    start = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", () => { start = null; });
  histograms.set(axis, { canvas, ends, lit: new Uint32Array(64) });
  return figure;
}

function measureHistograms() {
  for (const each of histograms.values()) {
    const { width, height } = each.canvas.getBoundingClientRect();
    Object.assign(each, { width, height });
    fit(each.canvas, width, height, Math.min(2, window.devicePixelRatio || 1));
  }
}

function drawHistogram(axis, selected) {
  const { canvas, ends, lit, width, height } = histograms.get(axis);
  const { bin, counts: all, numBins } = axis;
  lit.fill(0);
  for (let i = 0; i < numPairs; i++) if (selected[i] && bin[i] !== 255) lit[bin[i]]++;
  let most = 1;
  for (let b = 0; b < numBins; b++) if (all[b] > most) most = all[b];
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  if (axis.brush) {
    const [from, to] = placesOf(axis, axis.brush).map((place) => Math.max(0, Math.min(1, place)));
    context.fillStyle = colour("focus", 0.14);
    context.fillRect(from * width, 0, Math.max(1, (to - from) * width), height);
  }
  const step = width / numBins, gap = axis.steps ? 2 : 0.5;
  for (const [values, name, alpha] of [[all, "grey", 0.45], [lit, "first", 0.95]]) {
    context.fillStyle = colour(name, alpha);
    for (let b = 0; b < numBins; b++) if (values[b]) {
      const tall = Math.max(1, (values[b] / most) * (height - 2));
      context.fillRect(b * step + gap, height - tall, step - 2 * gap, tall);
    }
  }
  context.fillStyle = colour("rule");
  context.fillRect(0, height - 1, width, 1);
  ends.forEach((input, i) => {
    if (document.activeElement === input) return;
    const value = axis.brush ? axis.brush[i] : null;
    input.value = value === null || !Number.isFinite(value) ? "" : axis.steps ? String(value) : value.toFixed(3);
  });
}
