/* base.js - formats numbers, makes elements and reads the data. Text enters the page only through textContent, so it is never markup. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const RUNS = DATA.runs;
const THIN = "\u202f"; // narrow no-break space

/* element("div.name", {title: "…"}, child, "text", …) */
function element(kind, ...rest) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const part of rest.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) made.append(part);
    else if (typeof part === "object") for (const [key, value] of Object.entries(part)) set(made, key, value);
    else made.append(document.createTextNode(String(part)));
  }
  return made;
}

function set(to, key, value) {
  if (key.startsWith("--")) to.style.setProperty(key, value);
  else if (key === "style") to.style.cssText = value; // the page's policy forbids the attribute
  else if (typeof value === "function") to.addEventListener(key, value);
  else to.setAttribute(key, value);
}

/* ---- numbers */

const isNumber = (x) => typeof x === "number" && Number.isFinite(x);

function number(x, digits = 4) {
  if (!isNumber(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e7 || size < 1e-4) return x.toExponential(2).replace("e+", "e").replace("-", "−");
  const text = size >= 1000 ? Math.round(x).toLocaleString("en-US") : String(Number(x.toPrecision(digits)));
  return text.replace("-", "−");
}

const percent = (x, digits = 1) => (isNumber(x) ? `${Number((100 * x).toFixed(digits))}${THIN}%` : "–");
const signed = (x) => (x > 0 ? "+" : "") + number(x, 3);
const whole = (n) => Math.round(n).toLocaleString("en-US");
const many = (n, what) => `${whole(n)} ${what}${n === 1 ? "" : "s"}`;

function duration(seconds) {
  if (seconds < 9.95) return `${Number(seconds.toPrecision(2))}${THIN}s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s}${THIN}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${THIN}min ${s % 60}${THIN}s`;
  if (s < 172800) return `${Math.floor(s / 3600)}${THIN}h ${Math.floor((s % 3600) / 60)}${THIN}min`;
  return `${Math.floor(s / 86400)} days ${Math.floor((s % 86400) / 3600)}${THIN}h`;
}

/* ---- the data of a run */

/* {steps, values} of a metric, or null. */
const metric = (run, name) => (Object.hasOwn(run.metrics, name) ? run.metrics[name] : null);
const finite = (m) => (m ? m.values.filter(isNumber) : []);
const first = (run, name) => finite(metric(run, name))[0];
const last = (run, name) => finite(metric(run, name)).at(-1);
const setting = (run, name) => (run.settings || []).find(([key]) => key === name)?.[1];
const hasHistory = (run) => Object.keys(run.metrics).length > 0;
const nameOf = (run) => (RUNS.filter((r) => r.name === run.name).length > 1 ? run.path : run.name);

/* A figure before and after training: from the summary, or else from the first and the last evaluation. */
function figure(run, name) {
  const s = run.summary || {};
  const of = (part, value) => (isNumber(s[part]?.[name]) ? s[part][name] : value);
  return { base: of("base", first(run, `eval/${name}`)), final: of("final", last(run, `eval/${name}`)) };
}

function budgetOf(run) {
  const given = [run.summary?.budget, Number(setting(run, "token_budget") || NaN)].find(isNumber);
  return given > 0 ? given : null;
}

/* The largest gap between sampler and trainer, or undefined. */
function gapOf(run) {
  const gaps = finite(metric(run, "on_policy/max_gap"));
  const most = gaps.reduce((a, b) => Math.max(a, b), 0);
  if (gaps.length) return Math.max(most, isNumber(run.summary?.on_policy_max_gap) ? run.summary.on_policy_max_gap : 0);
  return isNumber(run.summary?.on_policy_max_gap) ? run.summary.on_policy_max_gap : undefined;
}

const stepsOf = (run) => (isNumber(run.summary?.steps) ? run.summary.steps : run.steps);
const secondsOf = (run) => (isNumber(run.summary?.seconds) ? run.summary.seconds : run.seconds);

/* Like is compared with like: of several kinds of a figure the one that most runs have, the first of those. */
function commonOf(kinds, has) {
  const counts = kinds.map((kind) => RUNS.filter((run) => has(kind, run)).length);
  return kinds[counts.indexOf(Math.max(...counts))];
}

/* The KL at the end: [title, value of a run]. Both kinds are k3. */
const KL_KINDS = [
  ["KL to the base", (run) => (isNumber(run.summary?.final?.kl) ? run.summary.final.kl : last(run, "eval/kl"))],
  ["KL to the reference", (run) => last(run, "kl")],
];
const klKind = () => commonOf(KL_KINDS, ([, value], run) => isNumber(value(run)));

/* A row of buttons of which one is pressed. */
function choices(labels, choose, at = 0) {
  const buttons = labels.map((label, i) => element("button", { type: "button", "aria-pressed": i === at, click: () => press(i) }, label));
  const press = (i) => {
    buttons.forEach((b, at) => b.setAttribute("aria-pressed", at === i));
    choose(i);
  };
  return element("div.choices", { role: "group" }, buttons);
}
