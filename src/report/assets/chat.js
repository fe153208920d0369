/* chat.js - two policies side by side: the same words and the same seed go to both. Their answers come token by token; a token shows its
 * log-probability, what else could have stood there, and what the other policy thinks of it. */

const CERTAIN = 0.05; // tokens whose -log-probability is smaller have no colour
const UNLIKELY = 7; // and from here on the full one

/* ---- a token of an answer */

/* A probability, also a small one. */
const chance = (logprob) => (logprob > Math.log(0.001) ? percent(Math.exp(logprob)) : `${number(100 * Math.exp(logprob), 2)}${THIN}%`);

const shownToken = (text) => (text === "" ? "the end" : JSON.stringify(text));

function sampledToken({ text, logprob, others }) {
  const span = element("span");
  if (text.trim() === "" && (text === "" || text.includes("\n"))) span.append(element("span.mark-only", text === "" ? "∎" : "↵"));
  span.append(text);
  if (isNumber(logprob) && -logprob > CERTAIN) {
    span.classList.add("down");
    span.style.setProperty("--a", (MOST_ALPHA * Math.min(1, Math.sqrt(-logprob / UNLIKELY))).toFixed(3));
  }
  const lines = [`${shownToken(text)}: log-prob ${number(logprob, 4)}, probability ${chance(logprob)}`];
  for (const o of others.filter((other) => other.text !== text).slice(0, 4)) lines.push(`${chance(o.logprob)} ${shownToken(o.text)}`);
  TIPS.set(span, lines);
  return span;
}

/* The tokens in one event of a stream: a character that is cut between tokens is shown at the last of them. */
function tokensOf(choice, decoder) {
  const p = choice.logprobs;
  if (!p) return [];
  if (p.content) {
    return p.content.map((t) => ({
      text: t.bytes ? decoder.decode(new Uint8Array(t.bytes), { stream: true }) : t.token,
      logprob: t.logprob, others: (t.top_logprobs || []).map((o) => ({ text: o.token, logprob: o.logprob })),
    }));
  }
  return p.tokens.map((text, i) => ({ text, logprob: p.token_logprobs[i], others: Object.entries(p.top_logprobs?.[i] || {}).map(([o, logprob]) => ({ text: o, logprob })) }));
}

/* ---- one side */

/* The policy a side talks to, and its conversation. */
class Side {
  constructor(label) {
    this.messages = [];
    this.pick = element("select", { "aria-label": `${label} policy`, change: () => ((this.chosen = true), this.restart()) });
    this.log = element("div.log", { role: "log", "aria-label": `${label} conversation`, tabindex: 0 });
    this.made = element("div.seat", element("header", this.pick), this.log);
    this.restart();
  }

  restart() {
    this.stop?.abort();
    this.messages = [];
    this.log.replaceChildren(element("p.empty", "Nothing said yet."));
  }

  /* policies: [[name, what it is called here]] */
  offer(policies, preferred) {
    const names = policies.map(([name]) => name);
    const kept = this.chosen && names.includes(this.pick.value) ? this.pick.value : preferred;
    if (this.offered !== JSON.stringify(policies)) this.pick.replaceChildren(...policies.map(([name, label]) => element("option", { value: name }, label)));
    this.offered = JSON.stringify(policies);
    this.pick.value = kept;
  }

  scroll() {
    this.log.scrollTop = this.log.scrollHeight;
  }

  /* Sends the text, and shows the answer as it comes. */
  async say(text, how, chat) {
    const stop = (this.stop = new AbortController());
    const place = withTips(element("div.tokens.text", { "aria-busy": "true" }), "Answer");
    const about = element("div.about");
    const decoder = new TextDecoder();
    const sums = { n: 0, logprob: 0, finish: null, model: null };
    const ids = { prompt: [], answer: [] };
    this.answer = null;
    let content = "";
    let written = ""; // with the tokens that are no content, such as the one that ends an answer
    if (!this.messages.length) this.log.replaceChildren();
    this.messages.push({ role: "user", content: text });
    this.log.append(element("div.said", element("div.text", text)), element("div.answer", place, about));
    const began = performance.now();
    const take = (event) => {
      if (event.error) throw new Refusal(500, event.error.message);
      const [choice] = event.choices;
      if (!choice) return;
      sums.model = event.model;
      ids.prompt = event.prompt_token_ids ?? ids.prompt;
      ids.answer.push(...(choice.token_ids ?? []));
      sums.finish = choice.finish_reason ?? sums.finish;
      content += choice.delta?.content ?? choice.text ?? "";
      const near = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
      for (const t of tokensOf(choice, decoder)) {
        written += t.text;
        place.append(sampledToken(t));
        sums.n++;
        sums.logprob += isNumber(t.logprob) ? t.logprob : 0;
      }
      if (near) this.scroll();
    };
    const body = { model: this.pick.value, stream: true, return_token_ids: true, ...how, ...(chat ? { messages: this.messages, logprobs: true, top_logprobs: 5 } : { prompt: text, logprobs: 5 }) };
    try {
      await listen(chat ? "/v1/chat/completions" : "/v1/completions", body, take, stop.signal);
      if (sums.finish === "stop" && written.length > content.length && place.lastChild) place.lastChild.replaceChildren(element("span.mark-only", "∎"));
      const seconds = (performance.now() - began) / 1000;
      const how = { stop: "ended by itself", length: "cut at the limit", tool_calls: "a tool call" }[sums.finish] ?? "";
      this.answer = { place, about, ids, model: sums.model, temperature: body.temperature };
      about.textContent = [sums.model, many(sums.n, "token"), how, sums.n && `${number(sums.n / seconds, 3)} tokens/s`, sums.n && `log-prob of it all ${number(sums.logprob, 4)}`].filter(Boolean).join(" · ");
    } catch (failure) {
      about.className = "about wrong";
      about.textContent = failure.name === "AbortError" ? "stopped" : failure.message;
    }
    if (chat) this.messages.push({ role: "assistant", content });
    else this.messages = [{ role: "user", content: text }];
    place.setAttribute("aria-busy", "false");
    this.scroll();
  }
}

/* ---- what one policy thinks of the other's answer */

async function judge(answer, model) {
  const { prompt, answer: ids } = answer.ids;
  if (!ids.length || model === answer.model) return;
  const body = { model, prompt: [...prompt, ...ids], max_tokens: 0, echo: true, logprobs: 0, ...(answer.temperature === undefined ? {} : { temperature: answer.temperature }) };
  const { choices: [{ logprobs }] } = await ask("/v1/completions", body);
  const found = logprobs.token_logprobs.slice(-ids.length);
  [...answer.place.children].forEach((span, i) => {
    const [first, ...rest] = TIPS.get(span);
    TIPS.set(span, [first, `${model}: log-prob ${number(found[i], 4)}, probability ${chance(found[i])}`, ...rest]);
  });
  answer.about.append(`, under ${model} ${number(found.reduce((a, b) => a + b, 0), 4)}`);
}

/* After both have answered. What fails here is not missed: the answers are there. */
async function compare([one, other]) {
  if (one.made.hidden || other.made.hidden || !one.answer || !other.answer) return;
  await Promise.all([judge(one.answer, other.answer.model), judge(other.answer, one.answer.model)]).catch(() => {});
}

/* ---- both */

const field = (label, name, attributes) => element("label.field", element("span", label), element("input", { name, type: "number", ...attributes }));

/* The newest policy of the run: the server's, or a later step that another process has made. */
function newestOf(models, s) {
  const step = (m) => m.policy_step ?? -1;
  return models.reduce((best, m) => (step(m) > step(best) ? m : best), models.find((m) => m.id === s.name)).id;
}

/* {made, offer(models), status(s), prompts(list)} */
function talk() {
  const sides = [new Side("Left"), new Side("Right")];
  const words = element("textarea", { rows: 2, id: "words", placeholder: "Say something to both", "aria-label": "Message to both policies" });
  const submit = element("button.primary", { type: "submit" }, "Send");
  const fields = [
    field("Temperature", "temperature", { min: 0, max: 5, step: "any", inputmode: "decimal" }),
    field("Tokens", "max_tokens", { min: 1, step: 1, value: 128 }),
    field("Seed", "seed", { min: 0, step: 1, placeholder: "random" }),
  ];
  const again = element("button", { type: "button", click: () => sides.forEach((side) => side.restart()) }, "Start over");
  const examples = element("div.examples");
  const seats = element("div.seats", sides.map((side) => side.made));
  const form = element("form.composer", words, element("div.line", fields, element("span.grow"), again, submit));
  const made = section("talk", "Talk to it", null, seats, form, examples);
  const under = element("p.under");
  made.querySelector("h2").after(under);
  let chat = true;
  let busy = false;

  const settings = () => {
    const given = (name) => form.elements[name].value.trim();
    const how = { max_tokens: Math.max(1, Math.round(Number(given("max_tokens")) || 128)), seed: given("seed") === "" ? Math.floor(Math.random() * 2 ** 31) : Math.round(Number(given("seed"))) };
    if (given("temperature") !== "") how.temperature = Number(given("temperature"));
    return how;
  };
  const setBusy = (is) => {
    busy = is;
    submit.textContent = is ? "Stop" : "Send";
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return sides.forEach((side) => side.stop?.abort());
    const text = words.value;
    if (!text.trim()) return words.focus();
    if (chat) words.value = "";
    setBusy(true);
    const how = settings();
    await Promise.all(sides.filter((side) => !side.made.hidden).map((side) => side.say(text, how, chat)));
    setBusy(false);
    compare(sides);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });

  return {
    made,
    status(s) {
      chat = s.chat;
      form.elements.temperature.placeholder = number(s.temperature, 3);
      const both = !sides[1].made.hidden;
      words.placeholder = chat ? (both ? "Say something to both" : "Say something") : "A text to continue: this model has no chat template";
      set(words, "aria-label", chat ? "Message" : "Text to continue");
      under.textContent = `${both ? `The same ${chat ? "words" : "text"} and the same seed go to both policies, so what differs is the policy. ` : ""}Orange tokens were unlikely; point at one for its log-probability${both ? " under both" : ""} and the alternatives.`;
    },
    /* Names of policies: by default the model without adapter on the left, the newest policy on the right. With one policy there is one side. */
    offer(models, s) {
      const names = models.map((m) => m.id).filter((id) => s.run || id === s.name || models.find((m) => m.id === id).policy_step !== undefined || !["base", s.model].includes(id));
      const base = names.includes("base") ? "base" : names[0];
      const left = s.run ? base : s.name;
      const right = s.run ? newestOf(models, s) : names.find((name) => name !== left) ?? left;
      const newest = newestOf(models, s);
      const label = (name) => (s.run && name === s.name ? `${name} – newest, step ${whole(s.step)}` : s.run && name === "base" ? "base – before training" : name === newest ? `${name} – newest` : name);
      const policies = names.map((name) => [name, label(name)]);
      sides[0].offer(policies, left);
      sides[1].offer(policies, right);
      sides[1].made.hidden = names.length < 2;
      seats.classList.toggle("one", names.length < 2);
    },
    /* Prompts of the run, to begin with. */
    prompts(list) {
      const shown = [...new Set(list)].filter((text) => text.length < 400).slice(0, 3);
      examples.replaceChildren(...(shown.length ? [element("span", "From the run:"), ...shown.map((text) => element("button", { type: "button", click: () => ((words.value = text), words.focus()) }, text.length > 60 ? `${text.slice(0, 60)}…` : text))] : []));
    },
  };
}
