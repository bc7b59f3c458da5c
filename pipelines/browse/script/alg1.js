// The indicators read off similarities again (VS-2FI, eq. 5 and 6), and the two filters (Alg. 1), as viewkit has them.

const KEPT = 0, BY_SC = 1, BY_AL = 2; // verdicts; of a run's pairs: trained on, not chosen

/** The expected alignment score at an exit, eq. 6: the sum over the bins in the same order as `alignment_score`. */
function alignmentScore(exit, similarity) {
  let total = 0;
  for (let b = exit * reading.bins; b < (exit + 1) * reading.bins; b++) {
    total += reading.weights[b] / (1 + Math.exp(reading.centres[b] - similarity / reading.tau));
  }
  return total;
}

const bits = new DataView(new ArrayBuffer(4));
/** The float32 numbers in their order: 0 is +0, 1 the next above it, -1 the next below. */
function float32At(order) {
  bits.setUint32(0, order >= 0 ? order : 0x80000000 + -order);
  return bits.getFloat32(0);
}

/** The lowest float32 similarity whose score at the exit exceeds gamma: the score rises with the similarity. */
function leastSimilarity(exit, gamma) {
  let low = -0x40000000, high = 0x40000000; // -2 and 2; similarities are cosines
  if (!(alignmentScore(exit, 2) > gamma)) return Infinity;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (alignmentScore(exit, float32At(middle)) > gamma) high = middle;
    else low = middle;
  }
  return float32At(high);
}

/** Alignment Level of every pair at gamma, eq. 5: the first exit whose score exceeds it, L + 1 where none does. */
function levelsAt(gamma, levels) {
  const exits = data.num_exits, step = exits + 1;
  const least = Array.from({ length: exits }, (_, exit) => leastSimilarity(exit, gamma));
  for (let i = 0; i < numPairs; i++) {
    let level = 1;
    while (level <= exits && !(similarities[i * step + level] >= least[level - 1])) level++;
    levels[i] = level;
  }
  return levels;
}

/** k_SC of a share of the histograms' pairs, as `consistency_threshold`: the nearest there is, of two the lower. */
function thresholdOf(share) {
  let best = 0;
  for (let i = 1; i < reading.below.length; i++) {
    if (Math.abs(reading.below[i] - share) < Math.abs(reading.below[best] - share)) best = i;
  }
  return reading.values[best];
}

/** The share of the histograms' pairs below k_SC. */
function shareBelow(kSc) {
  let low = 0, high = reading.values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (reading.values[middle] < kSc) low = middle + 1;
    else high = middle;
  }
  return low < reading.values.length ? reading.below[low] : 1;
}

/** Alg. 1, group by group: first by consistency, then by level among what is left; a group always keeps one. */
function judge(kSc, kAl, verdicts) {
  const consistency = axisOf.consistency.values, levels = axisOf.level.values;
  const leastSc = Math.fround(kSc), leastAl = Math.fround(kAl);
  let relaxed = 0;
  for (let start = 0; start < numPairs; start += perGroup) {
    const end = start + perGroup;
    let most = -Infinity;
    for (let i = start; i < end; i++) if (consistency[i] > most) most = consistency[i];
    if (most < leastSc) relaxed++;
    const sc = Math.min(leastSc, most);
    let highest = -Infinity;
    for (let i = start; i < end; i++) if (consistency[i] >= sc && levels[i] > highest) highest = levels[i];
    const al = Math.min(leastAl, highest);
    for (let i = start; i < end; i++) verdicts[i] = consistency[i] < sc ? BY_SC : levels[i] < al ? BY_AL : KEPT;
  }
  return relaxed;
}

/** Why Alg. 1 keeps or leaves out a pair, in a sentence. */
function reasonOf(pair, kSc, kAl) {
  const consistency = axisOf.consistency.values, levels = axisOf.level.values;
  const start = groupOf(pair) * perGroup;
  let most = -Infinity, highest = -Infinity;
  for (let i = start; i < start + perGroup; i++) most = Math.max(most, consistency[i]);
  const sc = Math.min(Math.fround(kSc), most);
  for (let i = start; i < start + perGroup; i++) if (consistency[i] >= sc) highest = Math.max(highest, levels[i]);
  const al = Math.min(Math.fround(kAl), highest);
  const relaxedSc = most < Math.fround(kSc) ? ` No pair of this image in this round reaches k_SC ${kSc.toFixed(3)}: the threshold falls to the best one's ${most.toFixed(3)}.` : "";
  const relaxedAl = highest < Math.fround(kAl) ? ` Of the consistent pairs none has k_AL ${kAl}: the threshold falls to their highest level, ${levelText(highest)}.` : "";
  if (consistency[pair] < sc) return ["sc", `Left out by Semantic Consistency: ${consistency[pair].toFixed(3)} is below ${sc.toFixed(3)}.${relaxedSc}`];
  if (levels[pair] < al) return ["al", `Left out by Alignment Level: ${levelText(levels[pair])} is below ${al}.${relaxedSc}${relaxedAl}`];
  return ["kept", `Kept: Semantic Consistency ${consistency[pair].toFixed(3)} is at least ${sc.toFixed(3)}, Alignment Level ${levelText(levels[pair])} is at least ${al}.${relaxedSc}${relaxedAl}`];
}
