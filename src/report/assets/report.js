/* report.js - the page of a report, from top to bottom. */

const KICKER = "Training report";

/* ---- several runs */

const columnsOf = ([klTitle, klOf]) => [
  ["Accuracy", (run) => arrow(figure(run, "accuracy"), percent)],
  ["Mean tokens", (run) => arrow(figure(run, "mean_length"), (x) => number(x, 3))],
  ["Over budget", (run) => arrow(figure(run, "share_over_budget"), percent)],
  ["Reward", (run) => (metric(run, "reward") ? arrow({ base: first(run, "reward"), final: last(run, "reward") }, (x) => number(x, 3)) : null)],
  ["Loss", (run) => (metric(run, "reward") || !metric(run, "loss") ? null : arrow({ base: first(run, "loss"), final: last(run, "loss") }, (x) => number(x, 3)))],
  [klTitle, (run) => (isNumber(klOf(run)) ? number(klOf(run), 3) : null)],
  ["Gap", (run) => (gapOf(run) === undefined ? null : gapOf(run) === 0 ? "exactly 0" : number(gapOf(run), 3))],
  ["Steps", (run) => (isNumber(stepsOf(run)) ? whole(stepsOf(run)) : null)],
  ["Time", (run) => (isNumber(secondsOf(run)) ? duration(secondsOf(run)) : null)],
];

const arrow = ({ base, final }, format) => (isNumber(final) ? (isNumber(base) ? `${format(base)} → ${format(final)}` : format(final)) : null);

function table(columns, rows) {
  const body = rows.map((row) => element("tr", row.map((cell, i) => element("td", { "data-label": columns[i] }, cell ?? "–"))));
  return element("table", element("thead", element("tr", columns.map((c) => element("th", c)))), element("tbody", body));
}

const runCell = (run, i) => element("span", element("i.dot", { "--colour": `var(${colourOf(i)})` }), nameOf(run));

function comparison() {
  const columns = columnsOf(klKind()).filter(([, value]) => RUNS.some((run) => value(run) !== null));
  return table(["Run", ...columns.map(([title]) => title)], RUNS.map((run, i) => [runCell(run, i), ...columns.map(([, value]) => value(run))]));
}

function differences() {
  const names = [...new Set(RUNS.flatMap((run) => (run.settings || []).map(([name]) => name)))];
  const differ = names.filter((name) => new Set(RUNS.map((run) => setting(run, name))).size > 1);
  if (!differ.length) return null;
  const rows = differ.map((name) => [name, ...RUNS.map((run) => (setting(run, name) === undefined ? null : element("code", setting(run, name))))]);
  return section("differences", "Where the settings differ", null, table(["Setting", ...RUNS.map(nameOf)], rows));
}

/* ---- all of it */

function onePage(run) {
  const short = about(run);
  MAIN.append(hero(KICKER, nameOf(run), short && element("p.under", short), story(run)), figures(run), notes(run) || "", curves(), ...partsOf(run));
}

function severalPage() {
  const place = element("div");
  const show = (i) => {
    const run = RUNS[i];
    place.replaceChildren(...[element("div.hero", element("h1", nameOf(run)), story(run)), figures(run), notes(run), ...partsOf(run)].filter(Boolean));
  };
  MAIN.append(hero(KICKER, RUNS.length > 3 ? `${RUNS.length} runs` : RUNS.map(nameOf).join(", ")), comparison(), curves(), differences() || "");
  MAIN.append(section("runs", "Each run", null, choices(RUNS.map(nameOf), show)), place);
  show(0);
}

theme();
if (RUNS.length === 1) onePage(RUNS[0]);
else severalPage();
contents();
document.getElementById("colophon").append(`Written by rein ${DATA.version}. This file is complete and loads nothing from the network. Charts: uPlot (MIT licence).`);
