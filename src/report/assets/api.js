/* api.js - requests to the server that sent the page, with the key if it has one, and streams of server-sent events. The key is kept in the
 * session storage, so that a new tab asks again. */

const KEY = "rein-api-key";
const keyOf = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
let key = keyOf();

function keepKey(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch { /* a browser may forbid storage: the key then lasts as long as the page */ }
}

/* An error of the server, or of the way to it (status 0). */
class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function send(path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store", credentials: "omit" });
  } catch (failure) {
    throw failure.name === "AbortError" ? failure : new Refusal(0, "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, error?.message || `The server answered with status ${answer.status}.`);
}

const ask = async (path, body) => (await send(path, body)).json();

/* Calls take with the object of each event until the stream ends. */
async function listen(path, body, take, signal) {
  const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) if (event.startsWith("data: ") && event !== "data: [DONE]") take(JSON.parse(event.slice(6)));
  }
}

/* ---- the key */

/* Asks for the key until the server takes one. */
function askForKey(main, why) {
  return new Promise((done) => {
    const field = element("input", { type: "password", id: "key", autocomplete: "off", required: "", "aria-describedby": "key-why" });
    const said = element("p.wrong", { id: "key-why", role: "alert" }, why);
    const button = element("button.primary", { type: "submit" }, "Open");
    const form = element(
      "form.gate", element("h1", "This server asks for a key"),
      element("p.under", "It is the one of ", element("code", "--api-key-file"), " or ", element("code", "REIN_API_KEY"), ". It stays in this tab."),
      element("div.line", element("label", { for: "key" }, "API key"), field, button), said,
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      keepKey(field.value.trim());
      try {
        await ask("/rein/v1/status");
        form.remove();
        done();
      } catch (refusal) {
        keepKey(null);
        said.textContent = refusal.status === 401 ? "The server does not take this key." : refusal.message;
        button.disabled = false;
        field.select();
      }
    });
    main.replaceChildren(form);
    field.focus();
  });
}
