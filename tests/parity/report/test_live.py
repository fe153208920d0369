"""The live page of `rein serve` in a browser: curves grow while a run trains, two policies answer side by side,
episodes, a key; light, dark and on a phone; without complaints, and without a request to anywhere else."""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import Browser, program
from png import decode, near

if not program():
    pytest.skip("no Chromium here: the live page was NOT looked at in a browser", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
REIN = ROOT / "build/rein"
sys.path.insert(0, str(ROOT / "tests/cli"))
import serving  # noqa: E402

KEY = "k<e>y"
LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 380, "height": 800, "scale": 2}}
GUESS = f"env: {sys.executable} {ROOT / 'examples/environments/guess.py'} --highest 3 --guesses 3"
HOSTILE = "</script><img src=x onerror=alert(1)>"
READY = "document.getElementById('pulse').dataset.state === 'on'"
ANSWERS = (
    "[...document.querySelectorAll('.seat .answer')]"
    ".filter(a => /token|stopped/.test(a.querySelector('.about').textContent)).length"
)
REFUSED = "the server responded with a status of 401"  # Chromium itself says so


def rein(folder, *arguments):
    subprocess.run([REIN, *arguments], cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("live")
    serving.make_files(REIN, made)
    shape = ["--preset", "grpo", "--prompts", "2", "--samples", "4", "--steps", "2", "--learning-rate", "1e-3"]
    play = ["--chat-format", "raw", "--task", GUESS, "--max-turns", "4", "--max-tokens", "32", "--eval-prompts", "4"]
    rein(made, "run", "agent", "--model", serving.SUMS, *shape, *play)
    return made


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        Served.browser = opened
        yield opened


class Served(serving.Server):
    """A server whose page is left before it stops: the page would complain."""

    browser = None

    def __init__(self, folder, *arguments, **more):
        super().__init__(REIN, *arguments, directory=folder, **more)
        self.url = f"http://127.0.0.1:{self.port}/"

    def __exit__(self, *_):
        self.browser.leave()
        super().__exit__()

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    def get(self, path):
        return json.load(urllib.request.urlopen(self.url + path))

    def train(self, step, text="ab"):
        """One step on two answers that differ; waits for its end."""
        answers = [
            {"prompt_ids": [16, 8, 5], "response_ids": [9, step % 7 + 3, 1], "reward": 1.0},
            {"prompt_ids": [16, 8, 5], "response_ids": [7, 7, 1], "reward": 0.0},
        ]
        for answer in answers:
            answer["metadata"] = {"prompt": f"Q: {text}", "pieces": [text, "\n", ""]}
        job = self.post("v1/train", {"trajectory_groups": [{"trajectories": answers}]})
        while self.get(f"v1/train/{job['id']}")["status"] not in ("done", "failed"):
            time.sleep(0.02)


def copy(folder, name, to):
    shutil.rmtree(folder / to, ignore_errors=True)
    shutil.copytree(folder / name, folder / to)


def is_fine(browser, served, width=1280):
    assert browser.errors == []
    assert {urlsplit(url).netloc for url in browser.requests} == {f"127.0.0.1:{served.port}"}
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "it scrolls sideways"


def say(browser, text):
    browser.evaluate("document.getElementById('words').value = ''")
    browser.write("#words", text)
    browser.press("Enter", "\r")


def hover(browser, selector):
    """Until the tip is there: what comes meanwhile may move the page."""
    for _ in range(10):
        box = browser.box(selector)
        browser.move(1, 1)
        browser.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if browser.evaluate("!document.getElementById('tip').hidden"):
            return
    raise AssertionError("no tip")


def text_of(browser, selector):
    return browser.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


# ------------------------------------------------------------------------------------------- a run that trains


@pytest.mark.parametrize("look", LOOKS)
def test_a_run(browser, folder, look):
    copy(folder, "one", "looked-at")
    with Served(folder, "looked-at") as served:
        browser.open(served.url, **LOOKS[look])
        browser.wait(READY)
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        browser.settle()
        sections = browser.texts("section", "id")
        assert sections == ["curves", "samples", "talk", "queue", "compare", "settings", "commands"]
        assert browser.evaluate("document.title") == "looked-at · step 2 · rein"
        assert "step 2" in text_of(browser, "#pulse")
        titles = browser.texts("figure.card h3")
        assert {"Reward", "Accuracy", "On-policy gap", "Time"} <= set(titles)
        accent = "#82a6ff" if look == "dark" else "#2b5fd0"
        browser.wait("document.querySelectorAll('figure.card .u-wrap').length > 8")
        assert near(decode(browser.screenshot("figure.card .plot", titles.index("Reward"))), accent, 90).sum() > 100
        page = decode(browser.screenshot("header.top"))
        assert (page[2, 2].mean() < 60) == (look == "dark")
        is_fine(browser, served, LOOKS[look].get("width", 1280))


def test_curves_grow_while_it_trains(browser, folder):
    shutil.rmtree(folder / "grows", ignore_errors=True)
    with Served(folder, "grows", "--model", "chatty", "--preset", "grpo", "--learning-rate", "1e-3") as served:
        browser.open(served.url)
        browser.wait(READY)
        assert "no history yet" in text_of(browser, "#curves") and "No jobs yet" in text_of(browser, "#queue")
        served.train(1)
        browser.wait("document.querySelectorAll('figure.card').length > 4")
        for step in (2, 3, 4):
            served.train(step)
            browser.wait(f"document.querySelector('figure.card .now').innerText.includes('step {step}')")
        browser.evaluate("document.querySelector('figure.card').dataset.kept = 'yes'")
        reward = "[...document.querySelectorAll('figure.card')].find(f => f.querySelector('h3').textContent === 'Loss')"
        before = browser.evaluate(f"{reward}.getAttribute('aria-label')")
        served.train(5)
        browser.wait("document.querySelector('figure.card .now').innerText.includes('step 5')")
        # the same charts with more points, not new ones
        assert browser.evaluate("document.querySelector('figure.card').dataset.kept") == "yes"
        assert browser.evaluate(f"{reward}.getAttribute('aria-label')") != before
        assert browser.evaluate("document.title").startswith("grows · step 5")
        assert browser.texts("#samples .choices button")[-1] == "Step 5"
        rows = browser.texts("#queue .job")
        assert len(rows) == 5 and rows[0].startswith("Step 5") and all("done" in row for row in rows)
        assert "5 done" in text_of(browser, "#queue") and "loss" in rows[0]
        is_fine(browser, served)


def test_a_run_that_another_process_trains(browser, folder):
    shutil.rmtree(folder / "elsewhere", ignore_errors=True)
    shape = "--task sums --preset rloo --prompts 2 --samples 4 --max-tokens 16".split()
    shape += "--eval-prompts 4 --eval-steps 5 --steps 400".split()
    trains = subprocess.Popen(
        [REIN, "run", "elsewhere", "--model", "chatty", *shape],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "elsewhere/checkpoints/0001/MANIFEST").exists() and trains.poll() is None:
            time.sleep(0.05)
        with Served(folder, "elsewhere") as served:
            browser.open(served.url)
            browser.wait(READY)
            assert "This server does not train" in text_of(browser, "#queue")
            step = "Number(document.querySelector('figure.card .now').innerText.match(/step (\\d+)/)?.[1])"
            browser.wait(f"{step} > 0")
            before = browser.evaluate(step)
            browser.wait(f"{step} > {before + 2}")
            pick = "document.querySelectorAll('.seat select')[1]"
            browser.wait(f"/@[1-9]/.test({pick}.value)")  # the newest checkpoint, not the one of the start
            say(browser, "Q:1 + 1 =")
            browser.wait(f"{ANSWERS} === 2")
            is_fine(browser, served)
    finally:
        trains.terminate()
        trains.wait()


def test_a_chosen_step_and_a_zoom_stay(browser, folder):
    shutil.rmtree(folder / "stays", ignore_errors=True)
    with Served(folder, "stays", "--model", "chatty", "--preset", "grpo", "--learning-rate", "1e-3") as served:
        for step in (1, 2, 3, 4):
            served.train(step)
        browser.open(served.url)
        browser.wait(READY)
        browser.wait("document.querySelectorAll('figure.card .u-over').length > 4")
        browser.evaluate("document.querySelectorAll('#samples .choices button')[1].click()")
        box = browser.box("figure.card .u-over")
        y = box["y"] + box["height"] / 2
        for kind, share in (("mousePressed", 0.3), ("mouseMoved", 0.5), ("mouseMoved", 0.7), ("mouseReleased", 0.7)):
            buttons = {"button": "left", "buttons": 1, "clickCount": 1}
            browser.call("Input.dispatchMouseEvent", type=kind, x=box["x"] + share * box["width"], y=y, **buttons)
        browser.settle()
        browser.move(4, 4)
        zoomed = decode(browser.screenshot("figure.card .plot"))
        served.train(5)
        browser.wait("document.title.includes('step 5')")
        browser.settle()
        pressed = (
            "[...document.querySelectorAll('#samples .choices button')].find(b => b.ariaPressed === 'true').textContent"
        )
        assert browser.evaluate(pressed) == "Step 2"
        assert len(browser.texts("#samples .choices button")) == 5
        after = decode(browser.screenshot("figure.card .plot"))
        assert zoomed.shape == after.shape and (zoomed != after).any(axis=2).mean() < 0.02
        is_fine(browser, served)


def test_a_job_can_be_cancelled(browser, folder):
    shutil.rmtree(folder / "queue", ignore_errors=True)
    with Served(folder, "queue", "--model", "chatty", "--preset", "grpo") as served:
        browser.open(served.url)
        browser.wait(READY)
        long = [{"prompt_ids": [16, 8, 5], "response_ids": [9] * 200, "reward": float(i % 2)} for i in range(256)]
        job = {"trajectory_groups": [{"trajectories": long}] * 8}
        served.post("v1/train", job), served.post("v1/train", job)
        browser.wait("document.querySelectorAll('#queue .job button').length === 2")
        assert "1 queued" in text_of(browser, "#queue") or "2 queued" in text_of(browser, "#queue")
        browser.wait("document.querySelector('#queue [role=progressbar]')")
        for _ in range(2):
            browser.evaluate("document.querySelector('#queue .job button:not(:disabled)')?.click()")
            time.sleep(0.1)
        browser.wait("/2 cancelled/.test(document.getElementById('queue').innerText)")
        assert {job["status"] for job in served.get("v1/train")["data"]} == {"cancelled"}
        is_fine(browser, served)


# -------------------------------------------------------------------------------------------------- to talk to


@pytest.mark.parametrize("look", LOOKS)
def test_two_policies_answer(browser, folder, look):
    copy(folder, "one", "talks")
    with Served(folder, "talks") as served:
        browser.open(served.url, **LOOKS[look])
        browser.wait(READY)
        assert browser.evaluate("[...document.querySelectorAll('.seat select')].map(s => s.value)") == ["base", "talks"]
        assert browser.evaluate("[...document.querySelector('.seat select').options].map(o => o.value)") == [
            "talks",
            "talks@0",
            "talks@1",
            "talks@2",
            "base",
            "chatty",
        ]
        browser.evaluate("document.querySelector('input[name=seed]').value = '7'")
        browser.evaluate("document.querySelector('input[name=max_tokens]').value = '12'")
        say(browser, "Q:3 + 4 =")
        browser.wait(f"{ANSWERS} === 2")
        abouts = browser.texts(".seat .about")
        assert "base" in abouts[0] and "talks@2" in abouts[1]
        for side, model in enumerate(("base", "talks")):
            body = {
                "model": model,
                "messages": [{"role": "user", "content": "Q:3 + 4 ="}],
                "seed": 7,
                "max_tokens": 12,
                "logprobs": True,
            }
            choice = served.post("v1/chat/completions", body)["choices"][0]
            wanted = choice["message"]["content"]
            shown = browser.evaluate(
                f"document.querySelectorAll('.seat')[{side}].querySelector('.tokens').textContent"
            ).rstrip("∎")
            assert shown.replace("↵", "") == wanted or shown.startswith(wanted)
            assert browser.evaluate(
                f"document.querySelectorAll('.seat')[{side}].querySelectorAll('.tokens > span').length"
            ) == len(choice["logprobs"]["content"])
        # each is judged by the other
        browser.wait("[...document.querySelectorAll('.seat .about')].every(a => a.textContent.includes(' under '))")
        assert "under talks@2" in browser.texts(".seat .about")[0] and "under base" in browser.texts(".seat .about")[1]
        # a second turn knows the first
        say(browser, "And 1 more?")
        browser.wait(f"{ANSWERS} === 4")
        browser.wait("[...document.querySelectorAll('.seat .about')].every(a => a.textContent.includes(' under '))")
        # the log-probability under the pointer, and with the arrow keys
        browser.evaluate("document.querySelector('.seat .log').scrollTop = 0")
        browser.evaluate("document.querySelector('.seat').scrollIntoView({block: 'center', behavior: 'instant'})")
        browser.settle()
        hover(browser, ".seat .tokens span")
        tip = text_of(browser, "#tip")
        assert "log-prob −" in tip and "probability" in tip and len(tip.splitlines()) >= 4
        assert tip.splitlines()[1].startswith("talks@2: log-prob −")  # what the other policy thinks of it
        browser.move(1, 1)
        assert browser.evaluate("document.getElementById('tip').hidden")
        browser.evaluate("document.querySelector('.seat .tokens').focus()")
        browser.press("ArrowRight")
        browser.press("ArrowRight")
        assert browser.texts(".seat .tokens .at") and browser.evaluate("!document.getElementById('tip').hidden")
        browser.press("Escape")
        assert browser.evaluate("document.getElementById('tip').hidden")
        is_fine(browser, served, LOOKS[look].get("width", 1280))


def test_any_two_steps(browser, folder):
    copy(folder, "one", "steps")
    with Served(folder, "steps") as served:
        browser.open(served.url)
        browser.wait(READY)
        for side, name in enumerate(("steps@1", "steps@2")):
            pick = f"document.querySelectorAll('.seat select')[{side}]"
            browser.evaluate(f"{pick}.value = '{name}', {pick}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        say(browser, "Q:1 + 1 =")
        browser.wait(f"{ANSWERS} === 2")
        abouts = browser.texts(".seat .about")
        assert "steps@1" in abouts[0] and "steps@2" in abouts[1]
        is_fine(browser, served)


def test_a_model_without_a_run(browser, folder):
    with Served(folder, "--model", str(serving.SUMS)) as served:
        browser.open(served.url)
        browser.wait(READY)
        assert browser.texts("section", "id") == ["talk"] and "A model without a run" in text_of(browser, ".hero")
        assert browser.evaluate("[...document.querySelectorAll('.seat')].filter(s => !s.hidden).length") == 1
        say(browser, "Q:3+4=?\nA:")  # it has no chat template: the text goes on
        browser.wait(f"{ANSWERS} === 1")
        assert "log-prob" in text_of(browser, ".seat .about")
        is_fine(browser, served)


def test_an_answer_can_be_stopped(browser, folder):
    with Served(folder, "--model", "chatty") as served:
        browser.open(served.url)
        browser.wait(READY)
        browser.evaluate("document.querySelector('input[name=max_tokens]').value = '1'")
        say(browser, "a")
        browser.wait(f"{ANSWERS} === 1")
        assert "cut at the limit" in text_of(browser, ".seat .about")
        browser.evaluate("document.querySelector('input[name=temperature]').value = '9'")  # the field allows 5
        browser.evaluate(
            "document.querySelector('input[name=temperature]').value = '5', "
            "document.querySelector('input[name=max_tokens]').value = '400'"
        )
        say(browser, "b")
        browser.evaluate("document.querySelector('.composer').requestSubmit()")
        browser.wait(f"{ANSWERS} === 2")
        is_fine(browser, served)


# --------------------------------------------------------------------------------------------- everything else


def test_a_key(browser, folder):
    with Served(folder, "one", environment={"REIN_API_KEY": KEY}) as served:
        browser.open(served.url)
        browser.evaluate("sessionStorage.clear()")
        browser.open(served.url)
        browser.wait("document.querySelector('#key')")
        assert browser.evaluate("document.activeElement.id") == "key" and browser.texts("section") == []
        assert browser.requests == [served.url] and browser.errors == []  # nothing is asked for without the key
        browser.write("#key", "wrong")
        browser.press("Enter", "\r")
        browser.wait("document.getElementById('key-why').textContent.includes('does not take this key')")
        assert all(REFUSED in error for error in browser.errors)
        browser.errors.clear()
        browser.evaluate("document.getElementById('key').value = ''")
        browser.write("#key", KEY)
        browser.press("Enter", "\r")
        browser.wait(READY)
        say(browser, "Q:1 + 1 =")
        browser.wait(f"{ANSWERS} === 2")
        is_fine(browser, served)
        browser.open(served.url)  # it stays for the tab
        browser.wait(READY)
        assert browser.evaluate("document.querySelector('#key') === null")
        assert browser.evaluate("Object.keys(localStorage).length") == 0 and browser.evaluate("document.cookie") == ""
        is_fine(browser, served)
        browser.evaluate("sessionStorage.clear()")


def test_hostile_texts_are_texts(browser, folder):
    shutil.rmtree(folder / "hostile", ignore_errors=True)
    with Served(folder, "hostile", "--model", "chatty", "--preset", "grpo", "--name", HOSTILE) as served:
        served.train(1, HOSTILE)
        browser.open(served.url)
        browser.wait(READY)
        say(browser, HOSTILE)
        browser.wait(f"{ANSWERS} === 2")
        assert (
            HOSTILE in text_of(browser, "#samples")
            and HOSTILE in text_of(browser, "h1")
            and HOSTILE in text_of(browser, ".said")
        )
        assert browser.evaluate("document.images.length") == 0 and browser.evaluate("document.scripts.length") == 3
        is_fine(browser, served)


@pytest.mark.parametrize("look", LOOKS)
def test_episodes(browser, folder, look):
    copy(folder, "agent", "plays")  # a copy runs its commands only if it is trusted
    with Served(folder, "plays", "--trust") as served:
        browser.open(served.url, **LOOKS[look])
        browser.wait(READY)
        assert text_of(browser, "#samples .under").startswith("Episodes")
        line = [json.loads(line) for line in open(folder / "plays/trajectories/train/0002.jsonl")]
        most = max(t["metrics"]["turns"] for group in line for t in group["trajectories"])
        shown = browser.evaluate(
            """[...document.querySelectorAll('.response')].map(
              (r) => [...r.querySelectorAll('.speaker > span:first-child')].map((s) => s.textContent))"""
        )
        assert max(turns.count("Model") for turns in shown) == most > 1
        assert all(turns[0] == "Model" and set(turns) <= {"Model", "Environment"} for turns in shown)
        assert browser.texts(".turn.mine .speaker b")[0].startswith("reward ")
        colours = browser.evaluate(
            "[...document.querySelectorAll('.turn:not(.mine) .up, .turn:not(.mine) .down')].length"
        )
        assert colours == 0 and browser.evaluate("document.querySelectorAll('.turn.mine .tokens > span').length") > 20
        is_fine(browser, served, LOOKS[look].get("width", 1280))


def test_the_server_goes_and_comes_back(browser, folder):
    served = Served(folder, "--model", "chatty")
    browser.open(served.url)
    browser.wait(READY)
    served.stop()
    browser.wait("document.getElementById('pulse').innerText.includes('cannot be reached')")
    again = subprocess.Popen(
        [REIN, "serve", "--model", "chatty", "--port", str(served.port)], cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        browser.wait(READY)
    finally:
        browser.leave()
        again.terminate()
        assert again.wait(timeout=60) == 0


def contrast(browser):
    """The smallest contrast of a text and what is behind it, and the text."""
    return browser.evaluate("""(() => {
      const parse = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = (c) => {
        const [r, g, b] = c.map((x) => (x /= 255, x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const over = (top, under) => top.slice(0, 3).map((x, i) => x * (top[3] ?? 1) + under[i] * (1 - (top[3] ?? 1)));
      const behind = (e) => {
        const layers = [];
        for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
        return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
      };
      let worst = [99, ""];
      for (const e of document.querySelectorAll("#talk *, #queue *, .hero *, #pulse, .top a, form.gate *")) {
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
        if (!e.offsetParent || e.closest(".mark-only")) continue;
        const back = behind(e), front = over(parse(getComputedStyle(e).color), back);
        const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < worst[0]) worst = [ratio, e.textContent.slice(0, 40)];
      }
      return worst;
    })()""")


@pytest.mark.parametrize("look", LOOKS)
def test_everyone_can_use_it(browser, folder, look):
    copy(folder, "one", "access")
    with Served(folder, "access") as served:
        browser.open(served.url, motion=False, **LOOKS[look])
        browser.wait(READY)
        served.train(3)
        browser.wait("document.querySelector('#queue .job')")
        say(browser, "Q:1 + 1 =")
        browser.wait(f"{ANSWERS} === 2")
        ratio, text = contrast(browser)
        assert ratio >= 4.5, (ratio, text)
        assert browser.evaluate("document.getAnimations().length") == 0  # reduced motion
        unnamed = browser.evaluate("""(() => {
          const isNamed = (e) => e.getAttribute('aria-label') || e.closest('label') || e.labels?.length ||
            e.textContent.trim() || e.querySelector('button');
          const all = document.querySelectorAll('button, input, select, textarea, [role=log], [role=group]');
          return [...all].filter((e) => !isNamed(e)).map((e) => e.outerHTML);
        })()""")
        assert unnamed == []
        ids = browser.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        browser.evaluate("document.body.focus(), document.activeElement.blur()")
        browser.press("Tab")
        outline = browser.evaluate(
            "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
        )
        assert outline[0] == "solid" and outline[1] == "2px"
        is_fine(browser, served, LOOKS[look].get("width", 1280))
