/* live.js - the page of a server, from top to bottom, and how it stays up to date. The data of the run comes once as the report has it, then
 * only what is new. Events of training come as a stream; everything else is asked for every two seconds while the page is looked at. */

const EVERY = 2000; // milliseconds
const MOST_STEPS = 8; // of which samples are kept
const PULSE = document.getElementById("pulse");
let STATUS = null;

/* ---- the data of the run */

/* Appends the points of a metric; where steps come again, the new ones stand. */
function appendPoints(to, more) {
  let n = to.steps.length;
  while (n && to.steps[n - 1] >= more.steps[0]) n--;
  to.steps.splice(n, Infinity, ...more.steps);
  to.values.splice(n, Infinity, ...more.values);
}

/* Takes what came after the last known step. Returns false if the run is not the one that it was: it must be fetched again. */
function merge(run, more) {
  const last = more.steps ?? -1;
  if (run.steps !== undefined && last < run.steps) return false;
  for (const [name, points] of Object.entries(more.metrics)) {
    if (metric(run, name)) appendPoints(run.metrics[name], points);
    else run.metrics[name] = points;
  }
  if (more.metrics.step_time) run.seconds = (run.seconds || 0) + finite(more.metrics.step_time).reduce((a, b) => a + b, 0);
  for (const s of more.samples) run.samples = [...run.samples.filter((old) => old.step < s.step), s].slice(-MOST_STEPS);
  if (more.lengths) run.lengths = { ...run.lengths, ...more.lengths };
  if (more.compare) run.compare = more.compare;
  if (more.summary) run.summary = more.summary;
  if (more.steps !== undefined) run.steps = more.steps;
  return Object.values(run.metrics).every((m) => m.steps.length < 8000);
}

async function fetchRun() {
  const known = RUNS[0];
  const { runs } = await ask(`/rein/v1/run${known ? `?after=${known.steps ?? -1}` : ""}`);
  const before = known?.steps;
  const newest = known?.samples.at(-1)?.step;
  if (!known) RUNS.push(runs[0]);
  else if (known.steps === undefined ? true : !merge(known, runs[0])) RUNS.splice(0, 1, known.steps === undefined ? runs[0] : (await ask("/rein/v1/run")).runs[0]);
  return !known || RUNS[0].steps !== before || RUNS[0].samples.at(-1)?.step !== newest;
}

/* ---- parts that change */

/* A part of the page whose content is replaced. */
function place() {
  const made = element("div");
  return { made, show: (...parts) => made.replaceChildren(...parts.flat().filter(Boolean)) };
}

const TOP = place();
const CURVES = place();
const SAMPLES = place();
const REST = place();
const QUEUE = place();
let chartsShown = null;
let follow = true; // the newest step, until another one is chosen

function showTop() {
  const run = RUNS[0];
  const served = [`model ${STATUS.model}`, run && setting(run, "task") && `task ${setting(run, "task")}`, run && setting(run, "preset") && `objective ${setting(run, "preset")}`];
  const lede = run ? hasHistory(run) && story(run) : element("p.lede", "A model without a run: it can be talked to. Curves, samples and training need a run, as in ", element("code", "rein serve RUN"), ".");
  TOP.show(hero(run ? "Live run" : "Served model", STATUS.name, element("p.under", served.filter(Boolean).join(" · ")), lede || null), run && hasHistory(run) && figures(run), run && notes(run));
  document.title = `${STATUS.name}${run && isNumber(run.steps) ? ` · step ${whole(run.steps)}` : ""} · rein`;
}

/* Charts take new points; they are replaced when other charts are needed. */
function showCurves() {
  SPAN = spanOfRuns();
  const wanted = JSON.stringify([CHARTS.map(({ charts }) => charts.map((c) => linesOf(c).length > 0)), Boolean(RUNS[0].lengths?.first || RUNS[0].lengths?.last), otherCharts().map((c) => c.title)]);
  if (wanted !== chartsShown) {
    const open = CURVES.made.querySelector("details")?.open;
    CURVES.show(curves());
    if (open) CURVES.made.querySelector("details").open = true;
  } else for (const figure of CURVES.made.querySelectorAll("figure.card")) if (!figure.refresh()) figure.replaceWith(figure.remake());
  chartsShown = wanted;
  forgetPlots();
}

function showSamples() {
  const run = RUNS[0];
  if (!run.samples.length) return SAMPLES.show(section("samples", "Samples", "There are none yet: they come with the first step."));
  const shown = SAMPLES.step;
  const kept = run.samples.findIndex((s) => s.step === shown);
  const at = follow || kept < 0 ? run.samples.length - 1 : kept;
  if (kept === at && SAMPLES.of === run.samples.length && SAMPLES.object === run.samples[at]) return null;
  SAMPLES.of = run.samples.length;
  SAMPLES.object = run.samples[at];
  return SAMPLES.show(samplesOf(run, sampled(run, at, (i) => {
    SAMPLES.step = RUNS[0].samples[i].step;
    follow = i === RUNS[0].samples.length - 1;
  })));
}

function showRun() {
  const run = RUNS[0];
  showTop();
  if (!run) return;
  showCurves();
  showSamples();
  TALK.prompts(run.samples.at(-1)?.groups.map((g) => g.prompt).filter((p) => typeof p === "string").map((p) => (STATUS.chat ? p.replace(/^user: /, "") : p)) ?? []);
  const key = JSON.stringify([run.compare?.after_step, run.settings?.length]);
  if (REST.key === key) return;
  REST.key = key;
  REST.show(
    run.compare && section("compare", "Before and after", "The same held-out prompts, answered by the policy before and after training.", beforeAndAfter(run)),
    run.settings?.length && configuration(run), section("commands", "Commands", null, run.commands.map(command)),
  );
}

/* ---- the training queue */

const JOBS = new Map(); // by id, in the order of their arrival
const MOST_JOBS = 300;
let arrived = 0;
const HAS_ENDED = ["done", "failed", "cancelled"];
const JOB_METRICS = [["reward", "reward"], ["loss", "loss"], ["kl", "KL"], ["entropy", "entropy"], ["grad_norm", "gradient norm"]];

function cancel(job, button) {
  button.disabled = true;
  ask(`/v1/train/${encodeURIComponent(job.id)}/cancel`, {}).then(takeJob, () => (button.disabled = false));
}

function jobRow(job) {
  const ended = HAS_ENDED.includes(job.status);
  const bar = job.status === "running" && element("div.bar", { role: "progressbar", "aria-label": "Progress of the step", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * job.progress) }, element("i", { style: `width: ${100 * job.progress}%` }));
  const button = !ended && element("button", { type: "button", "aria-label": `Cancel the job for step ${job.step}` }, "Cancel");
  if (button) button.addEventListener("click", () => cancel(job, button));
  const figuresOf = JOB_METRICS.filter(([name]) => isNumber(job.metrics?.[name])).map(([name, label]) => `${label} ${number(job.metrics[name], 3)}`);
  const said = job.error ? element("span.wrong", job.error) : job.nothing_to_train ? "nothing to train: every group had equal rewards" : figuresOf.join(" · ");
  return element(
    "li.job", { "data-status": job.status }, element("div.which", element("b", `Step ${whole(job.step)}`), element("span.chip", job.status), element("code", job.id)),
    bar, said && element("div.small.muted", said), button,
  );
}

function showQueue() {
  const rank = (job) => (HAS_ENDED.includes(job.status) ? 2 : job.status === "queued" ? 1 : 0);
  const jobs = [...JOBS.values()].sort((a, b) => rank(a) - rank(b) || (rank(a) === 2 ? b.order - a.order : a.order - b.order)).slice(0, 30);
  const counts = ["running", "queued", "done", "failed", "cancelled"].map((status) => [status, [...JOBS.values()].filter((j) => j.status === status).length]).filter(([, n]) => n);
  const none = STATUS.trains ? "No jobs yet. Send trajectory groups to /v1/train." : `This server does not train${STATUS.no_training ? `: ${STATUS.no_training}` : ""}.`;
  QUEUE.show(section(
    "queue", "Training queue", counts.length ? counts.map(([status, n]) => `${whole(n)} ${status}`).join(", ") : none,
    jobs.length > 0 && element("ol.jobs", jobs.map(jobRow)),
  ));
}

const keepJob = (job) => JOBS.set(job.id, { ...job, order: JOBS.get(job.id)?.order ?? arrived++ });

function takeJob(job) {
  const old = JOBS.get(job.id);
  keepJob(job);
  if (JOBS.size > MOST_JOBS) JOBS.delete(JOBS.keys().next().value);
  showQueue();
  if (HAS_ENDED.includes(job.status) && old && !HAS_ENDED.includes(old.status)) wake();
}

async function fetchJobs() {
  const { data } = await ask("/v1/train");
  JOBS.clear(); // the server may be another one
  data.reverse().forEach(keepJob);
  showQueue();
}

let listening = null;
function listenToJobs() {
  if (listening || !STATUS.trains) return;
  listening = new AbortController();
  const over = () => (listening = null);
  listen("/v1/events", null, takeJob, listening.signal).then(over, over);
}

/* ---- up to date */

let counted = null; // {tokens, at}: for the rate

function pulse() {
  const now = { tokens: STATUS.completion_tokens, at: performance.now() };
  const rate = counted && now.at > counted.at ? (1000 * (now.tokens - counted.tokens)) / (now.at - counted.at) : 0;
  counted = now;
  const running = [...JOBS.values()].find((j) => j.status === "running");
  const parts = [
    STATUS.step >= 0 && `step ${whole(STATUS.step)}`, running && `training step ${running.step}, ${percent(running.progress, 0)}`,
    STATUS.running > 0 && `${many(STATUS.running, "request")}${rate >= 1 ? `, ${number(rate, 2)} tokens/s` : ""}`, STATUS.waiting > 0 && `${whole(STATUS.waiting)} waiting`,
  ].filter(Boolean);
  tellState("on", parts.join(" · ") || "ready");
}

function tellState(state, text) {
  PULSE.dataset.state = state;
  if (PULSE.textContent !== text) PULSE.textContent = text;
}

const TALK = talk();
let modelsOf = null; // the step for which the list of models was fetched

async function update() {
  STATUS = await ask("/rein/v1/status");
  if (STATUS.version !== DATA.version) location.reload();
  const first = modelsOf === null;
  const changed = STATUS.run ? await fetchRun() : first;
  if (STATUS.trains && (first || !listening)) await fetchJobs();
  if (changed || modelsOf !== STATUS.step) {
    const { data } = await ask("/v1/models");
    TALK.offer(data, STATUS);
    modelsOf = STATUS.step;
  }
  if (first) build();
  TALK.status(STATUS);
  if (changed) showRun();
  if (first) showQueue(), contents();
  listenToJobs();
  pulse();
}

function build() {
  MAIN.replaceChildren(TOP.made, ...(STATUS.run ? [CURVES.made, SAMPLES.made, TALK.made, QUEUE.made, REST.made] : [TALK.made]));
}

let timer = null;
let updating = false;

async function wake() {
  if (updating) return;
  clearTimeout(timer);
  updating = true;
  try {
    await update();
  } catch (failure) {
    if (failure.status === 401) {
      keepKey(null);
      listening?.abort();
      tellState("off", "locked");
      await askForKey(MAIN, DATA.key && modelsOf === null ? "" : "The server does not take the key any more.");
      if (modelsOf !== null) build();
      timer = setTimeout(wake, 0);
      updating = false;
      return;
    }
    if (!(failure instanceof Refusal)) console.error(failure);
    tellState("off", failure instanceof Refusal ? failure.message : "This page has failed; the console says why.");
  }
  updating = false;
  if (!document.hidden) timer = setTimeout(wake, EVERY);
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : wake()));
theme();
document.getElementById("colophon").append(`Served by rein ${DATA.version}. This page loads nothing from anywhere else. Charts: uPlot (MIT licence).`);
if (DATA.key && !key) {
  tellState("off", "locked");
  askForKey(MAIN, "").then(wake);
} else wake();
