// The page's state, its controls, and what happens when one of them changes.

const PER_PAGE = 24; // pairs in the gallery: 48 pictures, and four of the pair beside them
const SHORT = { consistency: "SC", level: "AL" };
const byId = (id) => document.getElementById(id);
const state = {
  x: axes[0], y: axisOf.loss ?? axes[Math.min(1, axes.length - 1)], kSc: 0, kAl: 1, share: null, gamma: data.options.gamma ?? 0,
  verdict: data.scored || chosen ? String(KEPT) : "", className: "", run: "", key: "", pictured: "", pair: null, page: 0, order: "random",
};
const selected = new Uint8Array(numPairs);
const verdicts = new Uint8Array(numPairs);
const goodRows = new Uint8Array(data.keys.length);
let numSelected = 0, numRelaxed = 0;
const many = (count) => count.toLocaleString("en");

function startThresholds() {
  if (!data.scored) return;
  state.gammaAtFirst = state.gamma;
  state.kAlAtFirst = Math.ceil(data.k_al);
  state.kAl = state.kAlAtFirst;
  if (reading) { state.share = reading.share; state.kSc = thresholdOf(reading.share); }
  else state.kSc = 0.99;
}

function judgeAll() {
  if (data.scored) numRelaxed = judge(state.kSc, state.kAl, verdicts);
  else if (chosen) for (let i = 0; i < numPairs; i++) verdicts[i] = chosen[i] ? KEPT : BY_SC;
}

/** Which pairs are selected, and everything that shows it but the gallery. */
function filter() {
  const from = performance.now();
  const wanted = state.verdict === "" ? -1 : Number(state.verdict);
  for (let group = 0, i = 0; group < numGroups; group++) {
    const ofRun = state.run === "" || runOf[group] === Number(state.run);
    const good = goodRows[rowOf[group]] && ofRun && (!state.pictured || i < numPictured) ? 1 : 0;
    for (let c = 0; c < perGroup; c++, i++) selected[i] = good && (wanted < 0 || verdicts[i] === wanted) ? 1 : 0;
  }
  for (const { values, brush } of axes) {
    if (!brush) continue;
    const [low, high] = brush;
    for (let i = 0; i < numPairs; i++) if (!(values[i] >= low && values[i] <= high)) selected[i] = 0;
  }
  numSelected = 0;
  for (let i = 0; i < numPairs; i++) numSelected += selected[i];
  drawPoints(state.x, state.y, selected, verdicts);
  drawMarks(state.x, state.y, state.pair, null);
  for (const axis of axes) drawHistogram(axis, selected);
  byId("count").textContent = `${many(numSelected)} of ${many(numPairs)} pairs selected (${((100 * numSelected) / numPairs).toFixed(1)} %)`;
  performance.measure("filter", { start: from, end: performance.now() });
  later();
}

let waiting = null;
/** What takes longer waits until nothing has changed for a moment. */
function later() {
  clearTimeout(waiting);
  waiting = setTimeout(() => { state.page = 0; drawGallery(); sayThresholds(); sayCommand(); }, 90);
}

function findRows() {
  const part = state.key.toLowerCase();
  const number = state.className === "" ? -1 : Number(state.className);
  for (let row = 0; row < goodRows.length; row++) {
    goodRows[row] = (number < 0 || classOf[row] === number) && (!part || data.keys[row].toLowerCase().includes(part)) ? 1 : 0;
  }
}

function choose(pair, focus = false) {
  state.pair = pair;
  showPair(pair, state);
  drawMarks(state.x, state.y, pair, null);
  const verdict = verdictOf(pair, state);
  byId("said").textContent = `${describe(pair)}. ${verdict ? verdict[1] : ""}`;
  for (const tile of document.querySelectorAll(".tile")) tile.setAttribute("aria-current", String(Number(tile.dataset.pair) === pair));
  if (focus) plot.focus({ preventScroll: true });
}

/** The selected pair next to the current one along an axis; the first or last of all where there is none yet. Where
 * selected pairs have pictures, it goes from one of these to the next. */
function step(axis, direction) {
  const current = state.pair;
  const end = selected.subarray(0, numPictured).includes(1) ? numPictured : numPairs;
  const before = (a, b) => axis.place[a] - axis.place[b] || a - b;
  let best = null;
  for (let i = 0; i < end; i++) {
    if (!selected[i] || Number.isNaN(axis.place[i]) || i === current) continue;
    if (current !== null && !Number.isNaN(axis.place[current]) && direction * before(i, current) <= 0) continue;
    if (best === null || direction * before(i, best) < 0) best = i;
  }
  if (best !== null) choose(best);
}

function drawGallery() {
  const shown = [];
  for (let i = 0; i < numPictured; i++) if (selected[i]) shown.push(i);
  const { order } = state;
  if (order === "random") shown.sort((a, b) => scatter(a, 99) - scatter(b, 99));
  else {
    const [name, direction] = order.split(" ");
    const { values } = axisOf[name];
    const sign = direction === "down" ? -1 : 1;
    shown.sort((a, b) => (Number.isNaN(values[a]) ? 1 : Number.isNaN(values[b]) ? -1 : sign * (values[a] - values[b])) || a - b);
  }
  if (state.pair === null && shown.length) { state.pair = shown[0]; showPair(state.pair, state); drawMarks(state.x, state.y, state.pair, null); }
  const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
  state.page = Math.min(state.page, pages - 1);
  const tiles = shown.slice(state.page * PER_PAGE, (state.page + 1) * PER_PAGE).map((pair) => {
    const button = element("button", { type: "button", className: "tile" });
    button.dataset.pair = pair;
    button.setAttribute("aria-current", String(pair === state.pair));
    data.pair_index[pair % perGroup].forEach((view, i) => button.append(picture(data.views[groupOf(pair)][view], `view ${"AB"[i]}`, "pixels")));
    const facts = [state.x, state.y].map((axis) => `${SHORT[axis.name] ?? axis.name} ${numberText(axis.values[pair], axis.name)}`);
    button.append(element("span", { textContent: facts.join(" · ") }), element("span", { textContent: keyOf(pair) }));
    button.addEventListener("click", () => choose(pair));
    return element("li", {}, button);
  });
  byId("tiles").replaceChildren(...(tiles.length ? tiles : [element("li", { className: "soft", textContent: numPictured ? "None of the selected pairs has pictures in this file." : "This file has no pictures; --pairs says how many pairs get some." })]));
  byId("page-of").textContent = `${many(shown.length)} with pictures, page ${state.page + 1} of ${pages}`;
  byId("back").disabled = state.page === 0;
  byId("more").disabled = state.page >= pages - 1;
}

function sayThresholds() {
  if (!data.scored) return;
  const gone = [0, 0, 0];
  for (let i = 0; i < numPairs; i++) gone[verdicts[i]]++;
  const percent = (count, all) => `${((100 * count) / all).toFixed(1)} %`;
  byId("filtered").textContent = `Kept ${percent(gone[KEPT], numPairs)}; k_SC leaves out ${percent(gone[BY_SC], numPairs)}, k_AL ${percent(gone[BY_AL], numPairs)}. In ${percent(numRelaxed, numGroups)} of the groups no pair reaches k_SC, and the best one is kept.`;
}

function commandText() {
  if (data.run) return data.command ?? "";
  const words = ["viewkit pretrain DATASET --name NAME"];
  if (!data.scored) return `${words[0]} --select stored --pairs ${data.of} --policy ${data.policy_word}`;
  const lines = [];
  let column = data.of;
  if (state.gamma !== state.gammaAtFirst) {
    column = `${data.of}_gamma_${String(state.gamma).replace(/[^0-9a-z]/g, "_")}`;
    const read = data.of === "pairs" ? "" : ` --pairs ${data.of}`;
    lines.push(`viewkit rescore DATASET --gamma ${state.gamma}${read} --column ${column}`);
  }
  words.push(`--select vs2fi --pairs ${column} --policy ${data.policy_word}`);
  words.push(state.share === null ? `--k-sc ${state.kSc}` : `--filter-share ${state.share}`);
  if (state.kAl !== state.kAlAtFirst) words.push(`--k-al ${state.kAl}`);
  return [...lines, words.join(" ")].join("\n");
}

function sayCommand() {
  byId("command").textContent = commandText();
  byId("command").hidden = byId("copy-command").hidden = commandText() === "";
  const brushed = axes.some((axis) => axis.brush) || state.className !== "" || state.run !== "" || state.key || state.pictured;
  const why = data.runs ? "Several runs were trained with options of their own: browse one of them for its" : data.run ? "What this run's views were made with, where it is not the default; its other options are not shown" : data.scored ? "The options that train on what the thresholds keep" : "The options that train on these pairs";
  byId("take-about").textContent = `${why}${brushed ? "; ranges, class and key are no options of a training: take the keys for that" : ""}. Keys are those of the images of the selected pairs, one a line, as viewkit generate --only reads them.`;
}

function selectedKeys() {
  const found = new Set();
  for (let i = 0; i < numPairs; i++) if (selected[i]) found.add(keyOf(i));
  return [...found];
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `Copied ${what}.`;
  } catch {
    byId("copied").textContent = "The browser does not allow this page to copy; select the text, or download it.";
  }
}

function download(text, name) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** A slider and the number beside it. toSlider, fromSlider: between the number and where the slider stands. */
function link(name, read, write, toSlider = (value) => value, fromSlider = (value) => value) {
  const [range, number] = [byId(name), byId(`${name}-number`)];
  range.addEventListener("input", () => write(fromSlider(Number(range.value))));
  number.addEventListener("change", () => { if (number.value !== "" && number.checkValidity()) write(Number(number.value)); showThresholds(); });
  return () => {
    const value = read();
    range.value = toSlider(value);
    range.setAttribute("aria-valuetext", String(Number(value.toPrecision(4))));
    if (document.activeElement !== number) number.value = Number(value.toPrecision(6));
  };
}

let shows = [];
const showThresholds = () => shows.forEach((show) => show());

function setThresholds(changes) {
  Object.assign(state, changes);
  if ("gamma" in changes) { levelsAt(state.gamma, axisOf.level.values); lay(axisOf.level, axisOf.level.number); }
  showThresholds();
  judgeAll();
  filter();
  if (state.pair !== null) showPair(state.pair, state);
}

function linkThresholds() {
  if (!data.scored) { byId("thresholds").hidden = true; return; }
  byId("kal").max = byId("kal-number").max = data.num_exits + 1;
  shows = [
    link("ksc", () => state.kSc, (kSc) => setThresholds({ kSc, share: null })),
    link("kal", () => state.kAl, (kAl) => setThresholds({ kAl })),
  ];
  if (reading) {
    shows.push(link("share", () => 100 * (state.share ?? shareBelow(state.kSc)), (percent) => { const share = Number((percent / 100).toPrecision(6)); setThresholds({ share, kSc: thresholdOf(share) }); }));
    shows.push(link("gamma", () => state.gamma, (gamma) => setThresholds({ gamma: gamma === state.gammaAtFirst ? gamma : Number(gamma.toPrecision(6)) }), (gamma) => Math.log10(Math.max(gamma, 1e-4)), (place) => Math.min(0.9999, 10 ** place)));
  } else {
    for (const name of ["share", "gamma"]) byId(name).closest(".slider").hidden = true;
  }
}

function fill(select, options, value) {
  select.replaceChildren(...options.map(([text, own]) => element("option", { textContent: text, value: own })));
  select.value = value;
}

function resize() {
  measurePlot();
  measureHistograms();
  drawFrame(state.x, state.y);
  filter();
}

function reset() {
  axes.forEach((axis) => { axis.brush = null; });
  Object.assign(state, { className: "", run: "", key: "", pictured: "", verdict: data.scored || chosen ? String(KEPT) : "" });
  byId("class").value = byId("run").value = byId("key").value = byId("pictured").value = "";
  byId("verdict").value = state.verdict;
  findRows();
  if (data.scored) { const gamma = state.gammaAtFirst; startThresholds(); setThresholds(gamma === state.gamma ? {} : { gamma }); }
  else { judgeAll(); filter(); }
}

function linkPlot() {
  const tip = byId("tip");
  const at = (event) => { const box = plot.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const placeOf = ([left, top]) => { const area = inner(); return [(left - area.left) / area.width, 1 - (top - area.top) / area.height].map((each) => Math.max(0, Math.min(1, each))); };
  const areaOf = (from, to) => { const [a, b] = [placeOf(from), placeOf(to)]; return { x: [Math.min(a[0], b[0]), Math.max(a[0], b[0])], y: [Math.min(a[1], b[1]), Math.max(a[1], b[1])] }; };
  const isDrag = (from, to) => Math.hypot(from[0] - to[0], from[1] - to[1]) > 5;
  let start = null;
  plot.addEventListener("pointerdown", (event) => { if (event.button === 0) { start = at(event); plot.setPointerCapture(event.pointerId); } });
  plot.addEventListener("pointermove", (event) => {
    const now = at(event);
    if (start && isDrag(start, now)) { tip.hidden = true; drawMarks(state.x, state.y, state.pair, areaOf(start, now)); return; }
    const pair = nearest(state.x, state.y, now, selected, 9);
    tip.hidden = pair === null;
    if (pair === null) return;
    tip.textContent = describe(pair);
    Object.assign(tip.style, { top: `${now[1] + 14}px`, left: `${Math.min(now[0] + 12, Math.max(0, sizes.width - tip.offsetWidth - 4))}px` });
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = true; });
  plot.addEventListener("pointercancel", () => { start = null; drawMarks(state.x, state.y, state.pair, null); });
  plot.addEventListener("pointerup", (event) => {
    if (!start) return;
    const end = at(event);
    if (isDrag(start, end)) {
      const area = areaOf(start, end);
      state.x.brush = valuesBetween(state.x, ...area.x);
      if (state.y !== state.x) state.y.brush = valuesBetween(state.y, ...area.y);
      filter();
    } else {
      const pair = nearest(state.x, state.y, end, selected, 16);
      if (pair !== null) choose(pair, true);
    }
    start = null;
  });
  plot.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: [state.x, 1], ArrowLeft: [state.x, -1], ArrowUp: [state.y, 1], ArrowDown: [state.y, -1] };
    if (event.key in moves) step(...moves[event.key]);
    else if (event.key === "Escape") { axes.forEach((axis) => { axis.brush = null; }); filter(); }
    else return;
    event.preventDefault();
  });
}

function linkControls() {
  const named = axes.map((axis) => [axis.label, axis.name]);
  for (const name of ["x", "y"]) {
    fill(byId(name), named, state[name].name);
    byId(name).addEventListener("change", (event) => { state[name] = axisOf[event.target.value]; drawFrame(state.x, state.y); filter(); });
  }
  const choices = data.scored ? [["kept by both filters", KEPT], ["left out by k_SC", BY_SC], ["left out by k_AL", BY_AL], ["all", ""]] : [["trained on", KEPT], ["not chosen", BY_SC], ["all", ""]];
  fill(byId("verdict"), choices, state.verdict);
  if (!data.scored && !chosen) byId("verdict").closest("label").hidden = true;
  byId("verdict").addEventListener("change", (event) => { state.verdict = event.target.value; filter(); });
  fill(byId("class"), [["all", ""], ...data.class_names.map((name, i) => [name, i])], "");
  byId("class-line").hidden = data.class_names.length === 0;
  byId("class").addEventListener("change", (event) => { state.className = event.target.value; findRows(); filter(); });
  fill(byId("run"), [["all", ""], ...(data.runs ?? []).map((name, i) => [name, i])], "");
  byId("run-line").hidden = !runOf;
  byId("run").addEventListener("change", (event) => { state.run = event.target.value; filter(); });
  byId("key").addEventListener("input", (event) => { state.key = event.target.value; findRows(); filter(); });
  byId("pictured").addEventListener("change", (event) => { state.pictured = event.target.value; filter(); });
  byId("reset").addEventListener("click", reset);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("previous").addEventListener("click", () => step(state.x, -1));
  byId("next").addEventListener("click", () => step(state.x, 1));
  fill(byId("order"), [["random", "random"], ...axes.flatMap((axis) => [[`${axis.label}, low first`, `${axis.name} up`], [`${axis.label}, high first`, `${axis.name} down`]])], "random");
  byId("order").addEventListener("change", (event) => { state.order = event.target.value; state.page = 0; drawGallery(); });
  byId("back").addEventListener("click", () => { state.page--; drawGallery(); });
  byId("more").addEventListener("click", () => { state.page++; drawGallery(); });
  byId("copy-command").addEventListener("click", () => copy(commandText(), "the command"));
  byId("copy-keys").addEventListener("click", () => copy(selectedKeys().join("\n") + "\n", `${many(selectedKeys().length)} keys`));
  byId("download-keys").addEventListener("click", () => download(selectedKeys().join("\n") + "\n", "keys.txt"));
}

function sayWhatThisIs() {
  const from = data.run ? `pairs that ${data.runs ? "runs" : "run"} '${data.run}' compared` : `pairs of column '${data.of}'`;
  byId("about").textContent = `${many(numPairs)} ${from}, of ${many(data.keys.length)} images; ${many(numPictured)} have pictures, at ${data.side_px} px. Policy ${data.policy}.`;
  byId("version").textContent = data.version;
  const reasons = new Map(data.absent.map(({ why }) => [why, data.absent.filter((each) => each.why === why)]));
  byId("absent").replaceChildren(...[...reasons].map(([why, them]) => element("span", { textContent: `No ${them.map(({ label }) => label).join(", ")}: ${why}. ` })));
  const legend = data.scored ? [["first", "kept"], ["second", "left out by k_SC"], ["third", "left out by k_AL"]] : chosen ? [["first", "trained on"], ["second", "not chosen"]] : [["first", "selected"]];
  byId("legend").replaceChildren(...[...legend, ["grey", "not selected"]].map(([name, text]) => {
    const dot = element("i");
    dot.style.background = `var(--${name})`;
    return element("li", {}, dot, text);
  }));
}

readPalette();
startThresholds();
sayWhatThisIs();
axes.forEach((axis) => byId("histograms").append(makeHistogram(axis, () => filter())));
linkControls();
linkThresholds();
linkPlot();
findRows();
judgeAll();
showThresholds();
resize();
new ResizeObserver(() => { const box = plot.getBoundingClientRect(); if (box.width !== sizes.width || box.height !== sizes.height) resize(); }).observe(plot);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); drawFrame(state.x, state.y); filter(); });
performance.measure("load", { start: started, end: performance.now() });

// For tests and for the console: the same numbers that the page shows.
window.viewkit = { state, axes: axisOf, verdicts, selected, selectedKeys, setThresholds, filter, commandText, numPairs };
