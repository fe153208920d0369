/* charts.js - curves and histograms, drawn by uPlot. Cursors are linked; dragging zooms all charts that share the axis of steps.
 *
 * A figure has a function `refresh`, which draws the data that it has now and returns false if it needs another figure for them. */

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let PLOTS = []; // all charts, which are drawn again when the colours change
const HEIGHT = 196;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/* One row, one chart. series: [metric, label]; with several runs one series is drawn, the same for all. zero: the axis starts at 0. */
const CHARTS = [
  {
    group: "Does it learn?",
    charts: [
      { title: "Reward", note: "Mean of the step’s responses, after shaping", series: [["reward", "reward"]] },
      {
        title: "Accuracy", note: "Held-out prompts, with the 95 % interval", range: [0, 1], format: percent, points: true,
        series: [["eval/accuracy", "sampled"], ["eval/greedy_accuracy", "greedy"]], band: ["eval/accuracy_low", "eval/accuracy_high"],
      },
      {
        title: "Response length", note: "Mean tokens of a response", zero: true, budget: true,
        series: [["completions/mean_length", "training"], ["eval/mean_length", "held-out"]],
      },
      {
        title: "Over budget", note: "Share of the responses that are longer than their budget", zero: true, format: percent,
        series: [["budget/share_over", "training"], ["eval/share_over_budget", "held-out"]],
      },
    ],
  },
  {
    group: "Does it stay close?",
    charts: [
      { title: "KL to the reference", note: "How far the policy has moved, in nats per token", zero: true, series: [["kl", "training"], ["eval/kl", "held-out"]] },
      { title: "Entropy", note: "Of the next token’s distribution, in nats", zero: true, series: [["entropy", "entropy"]] },
      {
        title: "Clipped tokens", note: "Share of tokens whose gradient the clipping removed", zero: true, format: percent,
        series: [["clip_ratio/high_mean", "above"], ["clip_ratio/low_mean", "below"]],
      },
      { title: "On-policy gap", gap: true, zero: true, series: [["on_policy/max_gap", "gap"]] },
    ],
  },
  {
    group: "How does it train?",
    charts: [
      { title: "Loss", note: "The objective that is minimised", series: [["loss", "loss"]] },
      { title: "Gradient norm", note: "Before clipping", zero: true, series: [["grad_norm", "norm"]] },
      { title: "Learning rate", zero: true, series: [["learning_rate", "rate"]] },
      { title: "Critic: loss", note: "Of its values against the returns", zero: true, series: [["critic/loss", "loss"]] },
      { title: "Critic: explained variance", note: "Share of the variance of the returns; 1 predicts each of them", series: [["critic/explained_variance", "explained"]] },
      { title: "Critic: values and returns", note: "Means over the tokens", series: [["critic/value_mean", "value"], ["critic/return_mean", "return"]] },
      {
        title: "Time", note: "Seconds per step", zero: true, stacked: true, format: (x) => number(x, 3), instead: ["step_time", "step"],
        series: [["time/sample", "sample"], ["time/reference", "reference"], ["time/forward", "forward"], ["time/backward", "backward"], ["time/optimizer", "optimizer"], ["time/critic", "critic"]],
      },
    ],
  },
];

/* ---- a figure that keeps its width */

function card(title, note, ...rest) {
  const plot = element("div.plot");
  const now = element("div.now");
  const made = element("figure.card", element("header", element("h3", title), now), note && element("p.note", note), ...rest, plot);
  return { made, plot, now };
}

/* uPlot needs its size in pixels: a chart is drawn once its place is in the page, and again when the size changes. Returns what gives the
 * chart other data: a chart into which the user has zoomed stays there. */
function draw(place, options, data) {
  let plot = null;
  const size = () => ({ width: Math.max(place.clientWidth, 60), height: HEIGHT });
  new ResizeObserver(() => {
    if (!place.isConnected || !place.clientWidth) return;
    if (plot) plot.setSize(size());
    else PLOTS.push((plot = new uPlot({ ...options, ...size() }, data, place)));
  }).observe(place);
  return (changed, zoomed) => {
    data = changed;
    if (!plot) return;
    const { min, max } = plot.scales.x;
    plot.batch(() => {
      plot.setData(data, !zoomed);
      if (zoomed) plot.setScale("x", { min, max });
    });
  };
}

/* Forgets the charts that are no longer in the page. */
const forgetPlots = () => (PLOTS = PLOTS.filter((plot) => plot.root.isConnected || (plot.destroy(), false)));

/* Wide enough for its longest label. */
const labelWidth = (u, labels) => Math.max(40, 14 + 7.2 * Math.max(0, ...(labels || []).map((text) => text.length)));

const font = () => `12px ${css("--sans")}`;

function axis(more) {
  return {
    stroke: () => css("--faint"), font: font(), labelFont: font(), gap: 6,
    grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false }, ...more,
  };
}

/* A dashed, labelled line at the budget. */
function budgetLine(budget, upright) {
  return (u) => {
    const at = u.valToPos(budget, upright ? "x" : "y", true);
    const { left, top, width, height } = u.bbox;
    if (!(upright ? at >= left && at <= left + width : at >= top && at <= top + height)) return;
    const c = u.ctx;
    const scale = devicePixelRatio;
    c.save();
    c.strokeStyle = c.fillStyle = css("--warm");
    c.lineWidth = 1.5 * scale;
    c.setLineDash([5 * scale, 4 * scale]);
    c.beginPath();
    if (upright) c.moveTo(at, top), c.lineTo(at, top + height);
    else c.moveTo(left, at), c.lineTo(left + width, at);
    c.stroke();
    c.font = `${12 * scale}px ${css("--sans")}`;
    c.textAlign = "right";
    const right = upright && at - left < 90 * scale;
    if (right) c.textAlign = "left";
    c.fillText(`budget ${number(budget)}`, upright ? at + (right ? 6 : -6) * scale : left + width - 4 * scale, upright ? top + 12 * scale : at - 6 * scale);
    c.restore();
  };
}

/* ---- curves */

/* The lines of a chart: {run, name, label, colour, dash, metric, role}. */
function linesOf(spec) {
  if (RUNS.length === 1) return linesOfOne(spec, RUNS[0]);
  const [name] = commonOf(spec.instead ? [spec.instead] : spec.series, ([series], run) => metric(run, series));
  const lines = RUNS.map((run, i) => ({ run, name, label: nameOf(run), colour: colourOf(i), dash: i >= 8 ? [6, 4] : undefined, metric: metric(run, name) }));
  return lines.filter((line) => line.metric);
}

const colourOf = (i) => `--run${i % 8}`;

function linesOfOne(spec, run) {
  const found = spec.series.filter(([name]) => metric(run, name));
  const lines = found.length || !spec.instead || !metric(run, spec.instead[0]) ? found : [spec.instead];
  return lines.map(([name, label], i) => ({
    run, name, label, metric: metric(run, name), colour: i && !spec.stacked ? "--second" : "--accent", dash: i && spec.band ? [5, 4] : undefined,
    points: spec.points || name.startsWith("eval/"), shade: spec.stacked && lines.length > 1 ? 0.9 - (0.75 * i) / (lines.length - 1) : undefined,
  }));
}

const withAlpha = (colour, alpha) => colour + Math.round(255 * alpha).toString(16).padStart(2, "0");

/* A colour mixed with that of the surface. It is opaque, because stacked areas are drawn over each other. */
function shaded(share) {
  const parts = ["--accent", "--surface"].map((name) => css(name).slice(1).match(/../g).map((x) => parseInt(x, 16)));
  return `rgb(${parts[0].map((x, i) => Math.round(share * x + (1 - share) * parts[1][i])).join(" ")})`;
}

function serie(line, spec) {
  const stacked = line.shade !== undefined;
  const stroke = stacked ? () => shaded(line.shade) : () => css(line.colour);
  return {
    label: line.label, stroke, width: spec.flat ? 3 : stacked ? 1 : 2, dash: line.dash, fill: stacked ? stroke : undefined,
    points: { show: line.points || line.metric.steps.length === 1, size: 6, fill: stroke, stroke },
  };
}

/* Tables of the lines, and of the band around the first line of each run. */
function tablesOf(lines, spec) {
  const tables = lines.map((l) => [l.metric.steps, l.metric.values]);
  const bands = [];
  for (const l of spec.band && lines.length <= 3 ? lines : []) {
    const [low, high] = spec.band.map((name) => metric(l.run, name));
    if (!low || !high || l.name !== spec.series[0][0]) continue;
    bands.push({ line: l, at: 1 + tables.length });
    tables.push([low.steps, low.values], [high.steps, high.values]);
  }
  return { tables, bands };
}

/* The heights of a stack, from the top: each series is drawn down to the one below it. */
function stack(data) {
  const sums = data[0].map(() => 0);
  const heights = data.slice(1).map((values) => values.map((v, i) => (sums[i] += isNumber(v) ? v : 0)));
  return [data[0], ...heights.reverse()];
}

/* Until the user zooms in, all charts span the steps of all runs. */
function spanOfRuns() {
  return RUNS.flatMap((run) => Object.values(run.metrics)).reduce(([low, high], m) => [Math.min(low, m.steps[0]), Math.max(high, m.steps.at(-1))], [Infinity, -Infinity]);
}
let SPAN = spanOfRuns();
let ZOOMED = false;

function xRange(u, low, high) {
  const all = low === u.data[0][0] && high === u.data[0].at(-1);
  ZOOMED = !all;
  const [from, to] = all ? SPAN : [low, high];
  return from === to ? [from - 1, to + 1] : [from, to];
}

function yRange(now) {
  return (u, low, high) => {
    const { own: spec } = now();
    if (spec.range) return spec.range;
    if (spec.flat || low === null) return [-1, 1];
    if (spec.budgetOf) low = Math.min(low, spec.budgetOf), high = Math.max(high, spec.budgetOf);
    const room = (high - low || Math.abs(high) || 1) * 0.12;
    return [spec.zero && low >= 0 ? 0 : low - room, high + room];
  };
}

/* The budget that all runs have, or null. */
const commonBudget = () => (new Set(RUNS.map(budgetOf)).size === 1 ? budgetOf(RUNS[0]) : null);

/* What a chart shows now; null: nothing. Charts of the same `kind` differ in their data only. */
function contentOf(spec) {
  const lines = linesOf(spec);
  if (!lines.length) return null;
  const own = { ...spec, flat: spec.gap && lines.every((l) => finite(l.metric).every((x) => x === 0)), budgetOf: spec.budget ? commonBudget() : null };
  const { tables, bands } = tablesOf(lines, spec);
  const raw = tables.length > 1 ? uPlot.join(tables) : tables[0];
  const data = lines[0].shade !== undefined ? stack(raw) : raw;
  const kind = JSON.stringify([own.flat, own.budgetOf, bands.length, noteOf(own, lines), lines.map((l) => [l.name, l.label, l.metric.steps.length === 1])]);
  return { own, lines, bands, raw, data, kind, format: spec.format || number };
}

function curve(spec) {
  let now = contentOf(spec);
  if (!now) return null;
  const { own, lines, bands, format } = now;
  const keys = lines.length > 1 ? element("div.keys") : null;
  const { made, plot, now: value } = card(spec.title, noteOf(own, lines), keys);
  const drawn = lines.map((l) => serie(l, own));
  if (lines[0].shade !== undefined) drawn.reverse();
  const invisible = { stroke: "transparent", width: 0, points: { show: false } };
  const options = {
    legend: { show: false },
    cursor: { sync: { key: "steps" }, y: false, drag: { x: true, y: false }, points: { size: 8 } },
    scales: { x: { time: false, range: xRange }, y: { range: yRange(() => now) } },
    axes: [
      axis({ size: 26, incrs: STEPS, space: 56 }),
      axis({ size: labelWidth, space: 38, values: (u, at) => at.map((v) => tick(v, format)), ...(own.flat ? { splits: () => [0] } : {}) }),
    ],
    series: [{}, ...drawn, ...bands.flatMap(() => [invisible, invisible])],
    bands: bands.map(({ line, at }) => ({ series: [at + 1, at], fill: () => withAlpha(css(line.colour), 0.14) })),
    hooks: {
      setCursor: [(u) => show((shown = u.cursor.idx ?? null))],
      draw: own.budgetOf ? [budgetLine(own.budgetOf, false)] : [],
    },
  };
  let shown = null;
  const show = (index) => tell({ ...now, now: value, keys, flat: own.flat }, index);
  const describe = () => made.setAttribute("aria-label", `${spec.title}: ${now.lines.map((l) => `${l.label} from ${format(finite(l.metric)[0])} to ${format(finite(l.metric).at(-1))}`).join("; ")}`);
  const give = draw(plot, options, now.data);
  made.refresh = () => {
    const next = contentOf(spec);
    if (!next || next.kind !== now.kind) return false;
    now = next;
    give(now.data, ZOOMED);
    show(shown);
    describe();
    return true;
  };
  made.remake = () => curve(spec);
  show(null);
  describe();
  return made;
}

/* A label of the y axis, with as few digits as possible. */
function tick(value, format) {
  if (format === percent) return percent(value, 2);
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e7) return `${number(value / 1000)}k`;
  return number(value, 3);
}

function noteOf(spec, lines) {
  const thinned = lines.find((l) => l.metric.of);
  const more = thinned ? `; minimum and maximum of each interval, from ${many(thinned.metric.of, "step")}` : "";
  if (spec.flat) return "Sampler and trainer agree bit for bit at every step: no correction is needed";
  if (spec.gap) return `Largest difference between the log-probabilities of sampler and trainer${more}`;
  return spec.note || more ? (spec.note || "") + more : null;
}

/* Values at the cursor, or the last ones. */
function tell({ now, keys, lines, raw, format, flat }, index) {
  const at = (i) => {
    if (index === null) return finite(lines[i].metric).at(-1);
    let place = index; // a line without a point here shows its point before
    while (place > 0 && raw[i + 1][place] === undefined) place--;
    return raw[i + 1][place];
  };
  const step = index === null ? lines[0].metric.steps.at(-1) : raw[0][index];
  const where = element("span", index === null && RUNS.length > 1 ? "last" : `step ${whole(step)}`);
  if (keys) {
    now.replaceChildren(where);
    keys.replaceChildren(...lines.map((l, i) => element("span", { title: l.label }, mark(l), RUNS.length > 4 ? "" : l.label, " ", element("b", isNumber(at(i)) ? format(at(i)) : "–"))));
  } else if (flat) now.replaceChildren(element("span.badge", "exactly 0"));
  else now.replaceChildren(element("b", format(at(0))), " · ", where);
}

function mark(line) {
  const shade = line.shade === undefined ? `var(${line.colour})` : `color-mix(in srgb, var(--accent) ${Math.round(100 * line.shade)}%, var(--surface))`;
  return element(line.shade === undefined ? (line.dash ? "i.dashed" : "i") : "i.box", { "--colour": shade });
}

/* Metrics that have no chart of their own. */
function otherCharts() {
  const shown = new Set(CHARTS.flatMap((g) => g.charts.flatMap((c) => [...c.series.map(([name]) => name), ...(c.band || [])])));
  shown.add("eval/prompts").add("eval/samples"); // constant settings of the evaluation
  const names = new Set(RUNS.flatMap((run) => Object.keys(run.metrics)).filter((name) => !shown.has(name)));
  return [...names].map((name) => ({ title: name, series: [[name, name]] }));
}

/* ---- lengths */

function histogram(run) {
  const { lengths } = run;
  const { first: before, last: after, held_out: heldOut } = lengths || {};
  if (!before && !after) return null;
  const sets = [before, after].filter(Boolean);
  const budget = budgetOf(run);
  const most = Math.max(...sets.map((s) => s.values.reduce((a, b) => Math.max(a, b), 0)), budget || 0);
  const width = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4].find((w) => most / w <= 48) || 1e5;
  const centres = Array.from({ length: Math.floor(most / width) + 1 }, (_, i) => (i + 0.5) * width - 0.5);
  const shares = sets.map((s) => {
    const counts = centres.map(() => 0);
    for (const n of s.values) counts[Math.floor(n / width)]++;
    return counts.map((c) => c / s.values.length);
  });
  const labels = sets.map((s) => (s.step === 0 ? "base" : `step ${whole(s.step)}`));
  const colours = sets.length > 1 ? ["--second", "--accent"] : ["--accent"];
  const keys = element("div.keys", labels.map((l, i) => element("span", element("i.box", { "--colour": `var(${colours[i]})` }), l, " ", element("b", `${number(mean(sets[i].values), 3)} tokens`), " on average")));
  const { made, plot } = card("Lengths of the responses", heldOut ? "To the same held-out prompts, at the start and at the end, in tokens" : "In the first step and in the last, in tokens", keys);
  made.classList.add("full");
  made.refresh = () => run.lengths === lengths;
  made.remake = () => histogram(run);
  draw(plot, {
    legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, range: () => [-0.5, centres.at(-1) + width / 2] }, y: { range: (u, low, high) => [0, high * 1.12 || 1] } },
    axes: [axis({ size: 26, incrs: STEPS, space: 56 }), axis({ size: labelWidth, space: 38, values: (u, at) => at.map((v) => percent(v)) })],
    series: [{}, ...shares.map((_, i) => ({
      paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false }, width: 0,
      fill: () => withAlpha(css(colours[i]), i === shares.length - 1 ? 0.78 : 0.5),
    }))],
    hooks: { draw: budget ? [budgetLine(budget, true)] : [] },
  }, [centres, ...shares]);
  return made;
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
