// One pair: the image with both crops, both views, the generated view, its numbers, and why Alg. 1 decides as it does.

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const picture = (source, alt, className = "") => element("img", { src: source, alt, className, decoding: "async" });

function boxOf(view, className) {
  const [top, left, height, width] = [0, 1, 2, 3].map((k) => `${(100 * boxes[4 * view + k]) / 65535}%`);
  const box = element("span", { className: `box ${className}` });
  Object.assign(box.style, { top, left, height, width });
  return box;
}

/** The two views of a pair, as numbers among all views of all groups. */
const viewsOf = (pair) => data.pair_index[pair % perGroup].map((view) => groupOf(pair) * numViews + view);

function framed(source, alt, caption, views) {
  const frame = element("div", { className: "framed" }, picture(source, alt));
  views.forEach(([view, className]) => frame.append(boxOf(view, className)));
  return element("figure", {}, frame, element("figcaption", { textContent: caption }));
}

function picturesOf(pair) {
  const [image, generated] = data.images[rowOf[groupOf(pair)]];
  const views = viewsOf(pair);
  const found = element("div", { className: "views" });
  const of = (kind) => views.map((view, i) => [view, "ab"[i]]).filter(([view]) => sources[view] === kind);
  found.append(framed(image, "the image, with the crops outlined", "image", of(0)));
  found.append(generated ? framed(generated, "the generated view", "generated view", of(1)) : element("span"));
  data.pair_index[pair % perGroup].forEach((view, i) => {
    const shown = picture(data.views[groupOf(pair)][view], `view ${"AB"[i]}`, `pixels ${"ab"[i]}-view`);
    found.append(element("figure", {}, shown, element("figcaption", { textContent: `view ${"AB"[i]}, ${data.side_px} px` })));
  });
  return found;
}

function exitsOf(pair, gamma) {
  const level = axisOf.level.values[pair];
  const table = element("table", {}, element("caption", { textContent: reading ? `Exit by exit; gamma ${gamma.toPrecision(4)}` : "Exit by exit" }));
  const names = ["exit", "similarity", ...(reading ? ["alignment score"] : [])];
  table.append(element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col", textContent: name })))));
  const body = element("tbody");
  for (let exit = 0; exit <= data.num_exits; exit++) {
    const similarity = similarities[pair * (data.num_exits + 1) + exit];
    const line = element("tr", { className: exit === level ? "first" : "" });
    line.append(element("th", { scope: "row", textContent: exit ? String(exit) : "head" }), element("td", { textContent: similarity.toFixed(4) }));
    if (reading) line.append(element("td", { textContent: exit ? `${alignmentScore(exit - 1, similarity).toFixed(4)}${exit === level ? " ← first above" : ""}` : "" }));
    body.append(line);
  }
  table.append(body);
  return table;
}

function verdictOf(pair, state) {
  if (data.scored) return reasonOf(pair, state.kSc, state.kAl);
  if (!chosen) return null;
  return chosen[pair] ? ["kept", "Trained on: the run chose this pair of its image in this step."] : ["sc", "Not chosen: the run trained on another pair of this image in this step."];
}

function classText(pair) {
  const number = classOf[rowOf[groupOf(pair)]];
  return number === NO_CLASS ? null : data.class_names[number];
}

function describe(pair) {
  const numbers = [state.x, state.y].map((axis) => `${axis.label} ${numberText(axis.values[pair], axis.name)}`);
  return [keyOf(pair), ...numbers].join(", ");
}

function showPair(pair, state) {
  const body = document.getElementById("pair-body");
  const parts = [element("p", {}, element("code", { textContent: keyOf(pair) }))];
  if (pair < numPictured) parts.push(picturesOf(pair));
  else parts.push(element("p", { className: "soft", textContent: `Its pictures are not in this file: the first ${numPictured.toLocaleString("en")} pairs have them.` }));
  const verdict = verdictOf(pair, state);
  if (verdict) parts.push(element("p", { className: `verdict ${verdict[0]}`, textContent: verdict[1] }));
  const [a, b] = data.pair_index[pair % perGroup];
  const lines = [[data.place, places[groupOf(pair)]], ["views", `${a} and ${b} of ${numViews}`], ["run", runOf ? data.runs[runOf[groupOf(pair)]] : null], ["class", classText(pair)]];
  axes.forEach((axis) => lines.push([axis.label, numberText(axis.values[pair], axis.name)]));
  const list = element("dl");
  lines.forEach(([name, value]) => { if (value !== null) list.append(element("dt", { textContent: name }), element("dd", { textContent: String(value) })); });
  parts.push(list);
  if (similarities) parts.push(exitsOf(pair, state.gamma));
  body.replaceChildren(...parts);
}
