/* responses.js - completions: tokens coloured by their advantage, and the same prompts before and after training. */

const MOST_ALPHA = 0.62;

/* ---- the tooltip */

const TIP = element("div", { id: "tip", role: "status", hidden: "" });
document.body.append(TIP);
const TIPS = new WeakMap(); // of an element: its lines

function showTip(of) {
  TIP.replaceChildren(...TIPS.get(of).map((line) => element("div", line)));
  TIP.hidden = false;
  const at = of.getClientRects()[0];
  TIP.style.left = `${Math.max(8, Math.min(at.left, innerWidth - TIP.offsetWidth - 8))}px`;
  TIP.style.top = `${at.top > TIP.offsetHeight + 12 ? at.top - TIP.offsetHeight - 8 : at.bottom + 8}px`;
}

const hideTip = () => (TIP.hidden = true);

/* Tokens show their tips under the pointer, when touched, and with the arrow keys. */
function withTips(place, label) {
  let at = -1;
  const spans = () => [...place.children].filter((child) => TIPS.has(child));
  const mark = (index) => {
    spans().forEach((span, i) => span.classList.toggle("at", i === index));
    at = index;
    if (index >= 0) showTip(spans()[index]);
    else hideTip();
  };
  const under = (event) => event.target instanceof Element && [...place.children].find((child) => TIPS.has(child) && child.contains(event.target));
  place.addEventListener("pointerover", (event) => under(event) && showTip(under(event)));
  place.addEventListener("pointerout", (event) => event.pointerType === "mouse" && hideTip());
  place.addEventListener("blur", () => mark(-1));
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") mark(-1);
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    mark(Math.max(0, Math.min(spans().length - 1, at + step)));
  });
  set(place, "tabindex", 0);
  set(place, "role", "group");
  set(place, "aria-label", `${label}: the arrow keys go from token to token`);
  return place;
}
addEventListener("scroll", hideTip, { passive: true });

/* ---- one response */

const advantageAt = (r, i) => (Array.isArray(r.advantages) ? r.advantages[i] : r.advantages);

/* The largest |advantage| of the responses, for the colour scale. */
function greatestOf(groups) {
  let most = 0;
  for (const r of groups.flatMap((g) => g.responses))
    for (const a of [r.advantages].flat()) if (isNumber(a)) most = Math.max(most, Math.abs(a));
  return most;
}

function token(r, i, most) {
  const text = r.pieces ? r.pieces[i] : String(r.ids[i]);
  const advantage = advantageAt(r, i);
  const trains = !r.mask || r.mask[i];
  const blank = r.pieces && text.trim() === "";
  const span = element(r.pieces ? "span" : "span.id");
  const ends = text === "" && (i === r.tokens - 1 || r.mask?.[i + 1] === 0);
  if (blank && (text === "" || text.includes("\n"))) span.append(element("span.mark-only", ends ? "∎" : text === "" ? "·" : "↵"));
  span.append(text);
  if (!trains) span.classList.add("given");
  else if (isNumber(advantage) && most > 0) {
    span.classList.add(advantage < 0 ? "down" : "up");
    span.style.setProperty("--a", (MOST_ALPHA * Math.abs(advantage) / most).toFixed(3));
  }
  const lines = [`token ${whole(i + 1)} of ${whole(r.tokens)}${r.pieces ? `: ${ends ? "the end" : JSON.stringify(text)}` : `: id ${text}`}`];
  if (!trains) lines.push("does not train");
  else if (isNumber(advantage)) lines.push(`advantage ${signed(advantage)}`);
  TIPS.set(span, lines);
  return span;
}

const shownOf = (r) => (r.pieces || r.ids || []).length;

/* The tokens from one to another; without them, all. */
function tokens(r, most, from = 0, to = shownOf(r)) {
  const made = withTips(element("div.tokens.text", Array.from({ length: to - from }, (_, i) => token(r, from + i, most))), "Completion");
  if (to === shownOf(r) && to < r.tokens) made.append(element("span.given", ` … and ${many(r.tokens - to, "more token")}`));
  return made;
}

/* ---- an episode: who said what, turn by turn */

/* The tokens that the model wrote in each turn: [from, to) of every part that trains. */
function partsThatTrain(r) {
  const parts = [];
  for (let i = 0; i < shownOf(r); i++) {
    const trains = !r.mask || r.mask[i];
    if (trains && (i === 0 || (r.mask && !r.mask[i - 1]))) parts.push([i, i]);
    if (trains) parts.at(-1)[1] = i + 1;
  }
  return parts;
}

const SPEAKERS = { assistant: "Model", user: "Environment", tool: "Tool", system: "System" };

const call = ({ name, arguments: given }) => element("div.call", element("b", name || "?"), element("code", given));

function turn(t, part, r, most) {
  const mine = t.role === "assistant";
  const advantages = mine && part ? Array.from({ length: part[1] - part[0] }, (_, i) => advantageAt(r, part[0] + i)).filter(isNumber) : [];
  const about = [advantages.length > 0 && `advantage ${signed(mean(advantages))}`, isNumber(t.reward) && element("b", { class: t.reward < 0 ? "cost" : t.reward > 0 ? "gain" : "even" }, `reward ${signed(t.reward)}`)].filter(Boolean);
  const said = mine && part ? tokens(r, most, ...part) : t.text && element("div.text", t.text);
  return element(
    mine ? "li.turn.mine" : "li.turn", element("div.speaker", element("span", t.tool ? `${SPEAKERS.tool} ${t.tool}` : (SPEAKERS[t.role] ?? t.role)), about.map((one) => element("span", one))),
    said, (t.calls || []).map(call),
  );
}

function episode(r, most) {
  const parts = partsThatTrain(r);
  let written = 0;
  const made = r.turns.map((t) => turn(t, t.role === "assistant" ? parts[written++] : null, r, most));
  return element("ol.turns", made, r.more_turns && element("li.turn.muted.small", `… and ${many(r.more_turns, "more message")}`));
}

const written = (r, most) => (r.turns ? episode(r, most) : tokens(r, most));

/* ---- what is known of a response */

const verdict = (r) => (isNumber(r.accuracy) ? (r.accuracy >= 0.5 ? element("b.right", "✓ right") : element("b.wrong", "✗ wrong")) : null);

function facts(r) {
  const advantages = [r.advantages].flat().filter(isNumber);
  return element(
    "div.facts", verdict(r) || element("b", `reward ${number(r.reward, 3)}`),
    verdict(r) && isNumber(r.reward) && element("div", `reward ${number(r.reward, 3)}`),
    advantages.length > 0 && element("div", `${Array.isArray(r.advantages) ? "mean " : ""}advantage ${signed(mean(advantages))}`),
    r.turns && element("div", many(r.turns.filter((t) => t.role === "assistant").length, "turn")),
    element("div", many(r.tokens, "token"), r.truncated ? ", cut off" : ""),
  );
}

function asked(p) {
  const prompt = typeof p.prompt === "string" ? element("div.text", p.prompt) : element("div.small.muted", `A prompt of ${many(p.prompt_tokens, "token")}, whose text was not recorded`);
  return element("div.prompt", prompt, typeof p.answer === "string" && element("div.answer", "answer ", element("code", p.answer)));
}

/* ---- responses through training */

/* Samples of a few steps; `at` is the index of the step that is shown first, and `chosen` gets the index of another one. */
function sampled(run, at = 0, chosen = () => {}) {
  const place = element("div");
  const show = (i) => {
    const { groups } = run.samples[i];
    const most = greatestOf(groups);
    chosen(i);
    place.replaceChildren(
      most > 0 ? element("div.scale", `−${number(most, 3)}`, element("i"), `+${number(most, 3)}`, element("span", "advantage")) : "",
      ...groups.map((g) => element(
        "div.asked", asked(g), g.responses.map((r) => element("div.response", facts(r), written(r, most))),
        g.of > g.responses.length && element("p.under.small", `${g.responses.length} of ${g.of} responses, from the highest ${most > 0 ? "advantage" : "reward"} to the lowest`),
      )),
    );
  };
  show(at);
  return [choices(run.samples.map((s) => `Step ${whole(s.step)}`), show, at), place];
}

/* ---- before and after */

const KINDS = [
  ["wrong_right", "wrong, now right", "--accent"],
  ["right_right", "right, still right", "--second"],
  ["right_wrong", "right, now wrong", "--warm"],
  ["wrong_wrong", "wrong, still wrong", "--line"],
];

function shares(c) {
  if (!KINDS.some(([key]) => c[key])) return null;
  const parts = KINDS.filter(([key]) => c[key]);
  return [
    element("div.share", parts.map(([key, , colour]) => element("i", { style: `flex: ${c[key]}`, "--colour": `var(${colour})` }))),
    element("div.keys", parts.map(([key, label, colour]) => element("span", element("i.box", { "--colour": `var(${colour})` }), element("b", whole(c[key])), label))),
  ];
}

function side(title, r, budget, longest) {
  const over = budget && r.tokens > budget;
  const bar = element("div.bar", element(budget ? (over ? "i.over" : "i.within") : "i", { style: `width: ${(100 * r.tokens) / longest}%` }), budget && element("u", { style: `left: ${(100 * budget) / longest}%` }));
  const head = element("div.verdict", title, " · ", verdict(r), verdict(r) && " · ", many(r.tokens, "token"), over ? ", over budget" : "", isNumber(r.of) ? ` · ${r.right} of ${r.of} right` : "");
  const text = typeof r.text === "string" ? element("div.text", r.text.trim() === "" ? "∎" : r.text.trim()) : null;
  return element("div.side", head, bar, text);
}

function beforeAndAfter(run) {
  const c = run.compare;
  const budget = budgetOf(run);
  const longest = Math.max(budget || 0, ...c.prompts.flatMap((p) => [p.before.tokens, p.after.tokens]), 1);
  const titles = [c.before_step === 0 ? "Base" : `Step ${whole(c.before_step)}`, `Step ${whole(c.after_step)}`];
  return [
    shares(c),
    c.prompts.map((p) => element("div.pair", asked(p), element("div.sides", side(titles[0], p.before, budget, longest), side(titles[1], p.after, budget, longest)))),
    c.of > c.prompts.length && element("p.under.small", `${c.prompts.length} of ${whole(c.of)} prompts: some of each kind, in the order of the file`),
  ];
}
