/* parts.js - the parts of a page: figures, a sentence, curves, samples, settings, commands. */

const MAIN = document.getElementById("report");

function section(id, title, under, ...rest) {
  return element("section", { id }, element("h2", title), under && element("p.under", under), ...rest);
}

/* ---- figures */

const tile = (title, value, about, wide) => element(wide ? "div.figure.wide" : "div.figure", element("dt", title), element("dd", element("div.value", value), about && element("div.about", about)));
const change = (was, is) => (was === undefined ? element("span", is) : [element("span.was", was), element("span.to", "→"), element("span", is)]);

function interval(run, part) {
  const { accuracy_low: low, accuracy_high: high } = Object.fromEntries(["accuracy_low", "accuracy_high"].map((name) => [name, figure(run, name)[part]]));
  return isNumber(low) && isNumber(high) ? `${number(100 * low, 3)}–${percent(high)}` : null;
}

function accuracyTile(run) {
  const { base, final } = figure(run, "accuracy");
  if (!isNumber(final)) return null;
  const now = interval(run, "final");
  const was = interval(run, "base");
  const moved = isNumber(base) && base !== final;
  const about = now && `95 % interval ${now}${was && moved ? `, before ${was}` : ""}`;
  return tile("Accuracy on held-out prompts", change(isNumber(base) ? percent(base) : undefined, percent(final)), about, true);
}

/* The tile of a run that was never evaluated: its reward, or its loss. */
function trainingTile(run) {
  const name = metric(run, "reward") ? "reward" : "loss";
  if (!metric(run, name) || isNumber(figure(run, "accuracy").final)) return null;
  return tile(name === "reward" ? "Mean reward" : "Loss", change(number(first(run, name), 3), number(last(run, name), 3)), "first and last step", true);
}

function lengthTile(run) {
  const { base, final } = figure(run, "mean_length");
  const budget = budgetOf(run);
  const [was, is] = isNumber(final) ? [base, final] : [first(run, "completions/mean_length"), last(run, "completions/mean_length")];
  if (!isNumber(is)) return null;
  const about = budget ? `tokens, with a budget of ${number(budget)}` : "tokens";
  return tile("Mean response", change(isNumber(was) ? number(was, 3) : undefined, number(is, 3)), about, true);
}

function overTile(run) {
  const { base, final } = figure(run, "share_over_budget");
  const [was, is] = isNumber(final) ? [base, final] : [first(run, "budget/share_over"), last(run, "budget/share_over")];
  return isNumber(is) ? tile("Over budget", change(isNumber(was) ? percent(was) : undefined, percent(is)), "of the responses") : null;
}

function gapTile(run) {
  const gap = gapOf(run);
  if (gap === undefined) return null;
  return tile("On-policy gap", gap === 0 ? "exactly 0" : number(gap, 3), gap === 0 ? "sampler and trainer agree bit for bit" : "largest difference of log-probabilities");
}

function figures(run) {
  const [klTitle, klOf] = klKind();
  const kl = klOf(run);
  const seconds = secondsOf(run);
  const tokens = last(run, "num_tokens");
  return element(
    "dl.figures", accuracyTile(run) || trainingTile(run), lengthTile(run), overTile(run),
    isNumber(kl) && tile(klTitle, number(kl, 3), "nats per token"),
    gapTile(run),
    isNumber(stepsOf(run)) && tile("Steps", whole(stepsOf(run)), [isNumber(seconds) && duration(seconds), isNumber(tokens) && `${number(tokens)} tokens`].filter(Boolean).join(", ")),
  );
}

/* ---- one sentence */

const three = (x) => number(x, 3);
const strong = (text) => element("b", text);

/* "rose from 1 to 2"; the direction is named only when it is certain. */
function moved(was, is, format, unit = "", sure = true) {
  if (format(was) === format(is)) return ["stayed at ", strong(format(is) + unit)];
  return [!sure ? "went from " : is > was ? "rose from " : "fell from ", strong(format(was)), " to ", strong(format(is) + unit)];
}

function story(run) {
  const steps = stepsOf(run);
  const seconds = secondsOf(run);
  const [accuracy, length] = ["accuracy", "mean_length"].map((name) => figure(run, name));
  const sentence = [];
  if (isNumber(accuracy.base) && isNumber(accuracy.final)) {
    const [low, high] = ["accuracy_low", "accuracy_high"].map((name) => figure(run, name));
    const apart = low.final > high.base || high.final < low.base;
    sentence.push("held-out accuracy ", moved(accuracy.base, accuracy.final, percent, "", apart));
    if (!apart && isNumber(low.final) && percent(accuracy.base) !== percent(accuracy.final)) sentence.push(" (the 95 % intervals overlap)");
  } else if (metric(run, "reward")) sentence.push("the mean reward ", moved(first(run, "reward"), last(run, "reward"), three, "", false));
  else if (metric(run, "loss")) sentence.push("the loss ", moved(first(run, "loss"), last(run, "loss"), three, "", false));
  if (isNumber(length.base) && isNumber(length.final)) {
    sentence.push(sentence.length ? " and " : "", "the mean response ", moved(length.base, length.final, three, " tokens"));
    if (budgetOf(run)) sentence.push(`, with a budget of ${number(budgetOf(run))}`);
  }
  if (!sentence.length || !isNumber(steps)) return null;
  return element("p.lede", `In ${many(steps, "step")}${isNumber(seconds) ? ` and ${duration(seconds)}` : ""}, `, sentence, ".");
}

/* ---- the parts of a run */

function notes(run) {
  if (!run.notes.length) return null;
  return element("div.notes", element("b", "What could not be read"), element("ul", run.notes.map((n) => element("li", n)), run.more_notes && element("li", `and ${whole(run.more_notes)} more`)));
}

function command([title, text]) {
  const code = element("code", text);
  const copy = element("button", { type: "button", click: () => take(code, copy) }, "Copy");
  return element("div.command", element("header", element("span", title), copy), element("pre", code));
}

/* A page opened from a file may not use the clipboard: then the text is selected, so that the user can copy it. */
function take(code, button) {
  getSelection().selectAllChildren(code);
  const sentence = (text) => ((button.textContent = text), setTimeout(() => (button.textContent = "Copy"), 1500));
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => sentence("Copied"), () => sentence("Selected"));
  else sentence("Selected");
}

function samplesOf(run, shown) {
  const coloured = run.samples.some((s) => greatestOf(s.groups) > 0);
  const what = run.samples.some((s) => s.groups.some((g) => g.responses.some((r) => r.turns))) ? "Episodes" : "Completions";
  const under = `${what} sampled during training.${coloured ? " Training made blue tokens more likely and orange ones less likely; a stronger colour is a larger advantage." : ""}`;
  return section("samples", "Samples", under, shown);
}

const configuration = (run) => section("settings", "Configuration", "The settings that were given; all others have their defaults.", element("dl.settings", run.settings.map(([name, value]) => element("div", element("dt", name), element("dd", value)))));

function partsOf(run) {
  const parts = [];
  const bars = RUNS.length > 1 && histogram(run);
  if (bars) parts.push(element("div.charts", bars));
  if (run.compare) parts.push(section("compare", "Before and after", "The same held-out prompts, answered by the policy before and after training.", beforeAndAfter(run)));
  if (run.samples.length) {
    parts.push(samplesOf(run, sampled(run)));
  }
  if (run.settings?.length) parts.push(configuration(run));
  parts.push(section("commands", "Commands", null, run.commands.map(command)));
  return parts;
}

/* ---- curves */

function curves() {
  if (!RUNS.some(hasHistory)) return section("curves", "Curves", RUNS.length > 1 ? "None of these runs has a history yet." : "This run has no history yet: history.jsonl has no steps.");
  const under = RUNS.length > 1 ? null : "Cursors are linked. Drag to zoom in, double-click to zoom out.";
  const legend = RUNS.length > 1 && element("div.keys", RUNS.map((run, i) => element("span", element("i", { "--colour": `var(${colourOf(i)})` }), nameOf(run))));
  const bars = RUNS.length === 1 && histogram(RUNS[0]);
  const groups = CHARTS.map(({ group, charts }, i) => [group, [...charts.map(curve), i === 0 && bars].filter(Boolean)]).filter(([, made]) => made.length);
  return section("curves", "Curves", under, legend, groups.map(([group, made]) => [element("h3.group", group), element("div.charts", made)]), others());
}

function others() {
  const specs = otherCharts();
  if (!specs.length) return null;
  const place = element("div.charts");
  const made = element("details", element("summary", `All other metrics (${specs.length})`), place);
  made.addEventListener("toggle", () => made.open && !place.firstChild && place.append(...specs.map(curve).filter(Boolean)));
  return made;
}

/* ---- the frame */

function hero(kicker, title, ...rest) {
  return element("div.hero", element("p.kicker", kicker), element("h1", title), ...rest);
}

function about(run) {
  const parts = [setting(run, "model") && `model ${setting(run, "model").replace(/\/+$/, "").split("/").at(-1)}`, setting(run, "task") && `task ${setting(run, "task")}`, setting(run, "preset") && `objective ${setting(run, "preset")}`];
  return parts.filter(Boolean).join(" · ");
}

function contents() {
  const links = [...MAIN.querySelectorAll("section[id]")].filter((s) => !["commands", "differences"].includes(s.id));
  document.getElementById("contents").append(...links.map((s) => element("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
}

/* Light or dark as in the system’s settings, until the button is pressed. */
function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    for (const plot of PLOTS) plot.redraw(false);
  };
  dark.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  apply();
}
