"""The report in a browser: drawn, to the pixel; without complaints, without requests; light, dark and on a phone."""

import ctypes
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser, program
from png import decode, near

import rein
from rein._library import Error

if not program():
    pytest.skip("no Chromium here: the report was NOT looked at in a browser", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
MAKE_RUN = ROOT / "tests/report/fixtures/make_run.py"
ACCENT = {"light": "#2b5fd0", "dark": "#82a6ff"}
PHONE = 380
SEVERAL = ["loop", "other", "train", "sft", "empty"]
ONE_RUN = 13  # charts: four of each group, and the histogram


def write_report(path, *runs):
    library = ctypes.CDLL(str(Path(rein.__file__).parent / "librein.so"))
    error = Error()
    paths = (ctypes.c_char_p * len(runs))(*(str(run).encode() for run in runs))
    status = library.rein_report_write(str(path).encode(), paths, ctypes.c_size_t(len(runs)), ctypes.byref(error))
    assert status == 0, error.message.decode()
    return path


def long_history(run):
    run.mkdir()
    with open(run / "history.jsonl", "w") as file:
        for step in range(20000):
            line = {"step": step, "reward": step % 100 / 100, "loss": None if step % 5 else 1 / (step + 1)}
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    kinds = {
        "loop": [],
        "other": ["--seed", "2", "--steps", "20"],
        "train": ["--kind", "train", "--steps", "4"],
        "sft": ["--kind", "sft"],
        "hostile": ["--hostile", "--steps", "3"],
        "short": ["--steps", "1"],
    }
    for name, arguments in kinds.items():
        subprocess.run([sys.executable, str(MAKE_RUN), str(folder / name), "--prompts", "6", *arguments], check=True)
    long_history(folder / "long")
    (folder / "empty").mkdir()
    (folder / "empty/config.yaml").write_text("model: m\n")
    made = {name: write_report(folder / f"{name}.html", folder / name) for name in [*kinds, "long", "empty"]}
    made["several"] = write_report(folder / "several.html", *(folder / name for name in SEVERAL))
    return made


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


NAMES = ["train", "sft", "hostile", "short", "long", "empty"]
LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"width": PHONE, "height": 800, "scale": 2}}


def all_open(browser):
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.settle()
    browser.settle()


@pytest.mark.parametrize("name,look", [*itertools.product(["loop", "several"], LOOKS), *((n, "phone") for n in NAMES)])
def test_nothing_to_complain_of(browser, pages, name, look):
    browser.open(pages[name], **LOOKS[look])
    all_open(browser)
    assert browser.errors == []
    assert browser.requests == [pages[name].as_uri()]
    width = browser.evaluate("document.documentElement.scrollWidth")  # not innerWidth: a phone shrinks what is too wide
    assert width <= LOOKS[look].get("width", 1280), "it scrolls sideways"
    assert browser.evaluate("document.title").endswith("· rein")
    assert len(browser.evaluate("document.body.innerText")) > 200


def test_the_size_of_a_demo(pages):
    assert pages["loop"].stat().st_size < 1_500_000
    assert pages["long"].stat().st_size < 400_000


# ------------------------------------------------------------------------------------------------------------- charts


def drawn(browser, index):
    return decode(browser.screenshot("figure.card .plot", index))


@pytest.mark.parametrize("look", LOOKS)
def test_every_chart_has_its_curve(browser, pages, look):
    browser.open(pages["loop"], **LOOKS[look])
    titles = browser.texts("figure.card h3")
    assert len(titles) == ONE_RUN and {"Reward", "Accuracy", "Response length", "On-policy gap", "Time"} <= set(titles)
    for index, title in enumerate(titles):
        accent = near(drawn(browser, index), ACCENT["dark" if look == "dark" else "light"], 90)
        # a curve goes through nearly every column from its first step on
        columns = accent.any(axis=0).mean()
        assert accent.sum() > 200 and columns > (0.1 if title.startswith("Lengths") else 0.6), f"{title}: {columns:.2f}"


def test_a_gap_of_nothing_is_a_straight_line(browser, pages):
    browser.open(pages["loop"])
    titles = browser.texts("figure.card h3")
    accent = near(drawn(browser, titles.index("On-policy gap")), ACCENT["light"])
    rows = accent.sum(axis=1)
    assert (rows > 0.7 * accent.shape[1]).sum() in (2, 3, 4) and rows[rows > 0].size <= 6
    card = browser.texts("figure.card")[titles.index("On-policy gap")]
    assert "exactly 0" in card and "bit for bit" in card


def test_the_budget_is_a_dashed_line(browser, pages):
    browser.open(pages["loop"])
    titles = browser.texts("figure.card h3")
    for title, axis in (("Response length", 1), ("Lengths of the responses", 0)):
        warm = near(drawn(browser, titles.index(title)), "#b85a00", 60)
        share = warm.any(axis=1 - axis).sum() / warm.sum(axis=1 - axis).size
        line = warm.sum(axis=axis).max() / warm.shape[axis]
        assert 0.25 < line < 0.75 and share > 0.25, f"{title}: {line:.2f}"


def test_cursors_are_linked(browser, pages):
    browser.open(pages["loop"])
    browser.evaluate("document.querySelector('figure.card').scrollIntoView({behavior: 'instant'})")
    box = browser.box(".u-over")
    assert all("60" in text for text in browser.texts("figure.card .now") if "step" in text)
    browser.move(box["x"] + box["width"] / 2, box["y"] + 40)
    texts = [text for text in browser.texts("figure.card .now") if "step" in text]
    assert len(texts) == ONE_RUN - 2 and {re.search(r"step (\d+)", text)[1] for text in texts} == {"30"}
    history = [json.loads(line) for line in (pages["loop"].parent / "loop/history.jsonl").read_text().splitlines()]
    assert float(texts[0].split(" ")[0]) == pytest.approx(history[29]["reward"], abs=1e-3)
    browser.move(5, 5)
    assert all("60" in text for text in browser.texts("figure.card .now") if "step" in text)


CANVAS_HAS = """(() => {
    const canvas = document.querySelector("figure.card canvas");
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 0; i < data.length; i += 4) if (`${data[i]},${data[i + 1]},${data[i + 2]}` === "%s") return true;
    return false;
})()"""


def test_light_and_dark(browser, pages):
    browser.open(pages["loop"])
    light = decode(browser.screenshot(".card"))
    browser.evaluate("document.getElementById('theme').click()")
    browser.settle()
    assert browser.evaluate(CANVAS_HAS % "130,166,255")  # before a screenshot, for which everything is drawn again
    dark = decode(browser.screenshot(".card"))
    assert light.mean() > 230 and dark.mean() < 60
    assert near(light, ACCENT["light"]).sum() > 300 and near(dark, ACCENT["dark"]).sum() > 300
    assert near(dark, ACCENT["light"]).sum() == 0
    browser.open(pages["loop"], dark=True)
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"


def test_one_step_is_a_point(browser, pages):
    browser.open(pages["short"])
    assert 20 < near(drawn(browser, 0), ACCENT["light"]).sum() < 200


def test_long_histories(browser, pages):
    browser.open(pages["long"])
    assert "from 20,000 steps" in browser.evaluate("document.querySelector('figure.card .note').textContent")
    assert near(drawn(browser, 0), ACCENT["light"], 200).sum() > 5000


# ------------------------------------------------------------------------------------------------------------- words


def test_headline(browser, pages):
    browser.open(pages["loop"])
    summary = json.loads((pages["loop"].parent / "loop/summary.json").read_text())
    text = browser.evaluate("document.querySelector('.figures').innerText").replace("\u202f", " ")
    for part in ("base", "final"):
        assert f"{100 * summary[part]['accuracy']:.1f} %" in text
        assert f"{summary[part]['mean_length']:.1f}" in text
    assert "exactly 0" in text and "budget of 24" in text and f"{summary['final']['kl']:.3f}" in text
    lede = browser.evaluate("document.querySelector('.lede').textContent")
    assert lede.startswith("In 60 steps and ") and "rose from" in lede and "fell from" in lede


def test_tokens_are_coloured_by_their_advantage(browser, pages):
    browser.open(pages["loop"])
    said = browser.evaluate(
        "[...document.querySelectorAll('.response')].map(r => [r.querySelector('.facts').innerText,"
        " [...r.querySelectorAll('.tokens > span')].map(s => s.className)])"
    )
    assert len(said) == 8
    for facts, classes in said:
        advantage = float(re.search(r"advantage ([+−\d.]+)", facts)[1].replace("−", "-"))
        assert len(classes) == int(re.search(r"(\d+) tokens", facts)[1])
        if abs(advantage) > 0.2:
            assert set(classes) == {"up" if advantage > 0 else "down"}
    images = [decode(browser.screenshot(".tokens", i)) for i in range(4)]
    best, worst = images[0].reshape(-1, 3).mean(axis=0), images[3].reshape(-1, 3).mean(axis=0)
    assert best[2] > best[0] + 5 and worst[0] > worst[2] + 5  # blue, orange


def test_the_advantage_under_the_pointer(browser, pages):
    browser.open(pages["loop"])
    browser.evaluate("document.querySelector('.response').scrollIntoView({block: 'center', behavior: 'instant'})")
    browser.settle()  # a tip does not outlive scrolling
    box = browser.box(".tokens span")
    browser.move(box["x"] + 3, box["y"] + 8)
    tip = browser.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
    assert re.fullmatch(r'token 1 of \d+: ".+"\nadvantage [+−][\d.]+', tip)
    browser.move(2, 2)
    assert browser.evaluate("document.getElementById('tip').hidden")


def test_steps_can_be_chosen(browser, pages):
    browser.open(pages["loop"])
    assert browser.texts("#samples .choices button")[-1] == "Step 60"
    before = browser.evaluate("document.querySelector('#samples .tokens').innerText")
    browser.evaluate("[...document.querySelectorAll('#samples .choices button')].at(-1).click()")
    assert browser.evaluate("document.querySelector('#samples .tokens').innerText") != before
    assert browser.errors == []


def test_before_and_after(browser, pages):
    browser.open(pages["loop"])
    sides = browser.texts(".pair .side")
    pairs = list(zip(sides[::2], sides[1::2]))
    assert len(sides) == 24 and len(browser.texts(".pair")) == 12
    assert any("✗ wrong" in before and "✓ right" in after for before, after in pairs)
    assert sum(map(int, browser.texts("#compare > .keys b"))) == 128


def test_several_runs(browser, pages):
    browser.open(pages["several"])
    rows = browser.texts(".hero + table tbody tr")
    assert [row.split()[0] for row in rows] == SEVERAL
    assert "exactly 0" in rows[1]
    reward = drawn(browser, 0)
    for colour in ("#d9780a", "#0a8a68"):  # the second and the third run; the third lies over the first
        assert near(reward, colour, 60).sum() > 50
    browser.evaluate("document.querySelectorAll('#runs .choices button')[1].click()")
    browser.settle()
    assert browser.evaluate("document.querySelectorAll('h1')[1].textContent") == "other"
    assert browser.errors == []


def test_what_is_not_there_is_left_out(browser, pages):
    browser.open(pages["sft"])
    assert browser.texts("section", "id") == ["curves", "settings", "commands"]
    browser.open(pages["train"])
    assert browser.texts("section", "id") == ["curves", "samples", "settings", "commands"]
    assert "whose text was not recorded" in browser.evaluate("document.getElementById('samples').innerText")
    browser.open(pages["empty"])
    assert "no history yet" in browser.evaluate("document.getElementById('curves').innerText")


def test_hostile_texts_are_texts(browser, pages):
    browser.open(pages["hostile"])
    assert browser.evaluate("document.title") == "hostile · rein"
    assert browser.evaluate("document.images.length") == 0 and browser.evaluate("document.scripts.length") == 3
    samples = browser.evaluate("document.getElementById('samples').innerText")
    assert "</script><script>document.title='broken in'</script>" in samples and "<img src=x onerror=" in samples
    notes = browser.evaluate("document.querySelector('.notes').innerText")
    assert "not UTF-8" in notes and "0003.jsonl: line 1" in notes
