"""serve_page.py REIN: the live page of `rein serve` and its routes, without a browser (with one: tests/parity/report/test_live.py). serving.py
has made the models and the run in the current directory. Prints 'N passed, N failed'."""

import base64
import concurrent.futures
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import time
import traceback

from serve import REIN, Server, chat, say

KEY = {"REIN_API_KEY": "a secret <key>"}
BEARER = {"Authorization": "Bearer a secret <key>"}
ROUTES = ["/rein/v1/status", "/rein/v1/run", "/v1/train", "/v1/models", "/v1/history"]


class Reader(html.parser.HTMLParser):
    """The elements of a page, and the texts of its styles and scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], {"style": [], "script": []}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        executed = tag == "style" or (tag == "script" and not dict(attributes).get("type"))
        self.inside = tag if executed else None
        if executed:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside][-1] += data


def directives(headers):
    return {part.split()[0]: part.split()[1:] for part in headers["Content-Security-Policy"].split(";")}


def test_the_page_runs_only_its_own_code():
    with Server("--model", "chatty") as s:
        status, headers, text = s.ask("/")
        assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
        policy, page = directives(headers), Reader(text)
        for kind, texts in page.texts.items():
            hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts]
            assert policy[f"{kind}-src"] == hashes and len(hashes) == 2, (kind, policy)
        assert policy["default-src"] == ["'none'"] and policy["connect-src"] == ["'self'"]
        assert all(policy[name] == ["'none'"] for name in ("base-uri", "form-action", "frame-ancestors"))
        for tag, attributes in page.elements:
            assert not [a for a in attributes if a.startswith("on") or a in ("style", "src", "srcdoc", "action")], (tag, attributes)
            assert attributes.get("href", "#").startswith(("#", "data:")), (tag, attributes)
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
        # nothing is loaded from elsewhere: the only addresses are those of licences and namespaces
        assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org", "https://github.com"}


def test_head_and_other_methods():
    with Server("--model", "chatty") as s:
        _, wanted, text = s.ask("/")
        status, headers, body = s.ask("/", method="HEAD")
        assert status == 200 and body == "" and int(headers["Content-Length"]) == len(text.encode())
        assert headers["Content-Security-Policy"] == wanted["Content-Security-Policy"]
        s.bad(405, "/", {})
        s.bad(405, "/rein/v1/status", {})
        s.bad(405, "/rein/v1/run", method="DELETE")
        s.bad(403, "/", headers={"Host": "evil.example"})
        s.bad(403, "/rein/v1/status", headers={"Origin": "http://evil.example"})
        assert "Content-Security-Policy" not in s.ask("/health")[1]


def test_a_key():
    with Server("one", "--name", "secret-run", environment=KEY) as s:
        status, _, text = s.ask("/")
        assert status == 200 and '"key":true' in text
        assert "secret" not in text and "chatty" not in text  # the page says nothing before it has the key
        assert s.ask("/", method="HEAD")[0] == 200
        for route in ROUTES:
            assert s.bad(401, route)["code"] == "invalid_api_key"
            s.bad(401, route, headers={"Authorization": "Bearer wrong"})
            s.good(route, headers=BEARER)
    with Server("one") as s:
        assert '"key":false' in s.ask("/")[2]


def test_status():
    with Server("--model", "chatty") as s:
        status = s.good("/rein/v1/status")
        assert (status["name"], status["model"], status["run"], status["trains"]) == ("chatty", "chatty", False, False)
        assert status["chat"] and status["step"] == -1 and status["temperature"] == 1 and status["requests"] == 0
        answer = s.good("/v1/chat/completions", {"model": "chatty", "messages": say("Q:1+1=?"), "max_tokens": 4})
        after = s.good("/rein/v1/status")
        assert after["requests"] == 1 and after["completion_tokens"] == answer["usage"]["completion_tokens"]
    with Server("one") as s:
        status = s.good("/rein/v1/status")
        assert status["run"] and status["trains"] and status["step"] == 2 and status["temperature"] == 0.7
        assert status["no_training"] is None and status["training_jobs"] == 0


def test_a_model_without_a_run():
    with Server("--model", "chatty") as s:
        assert "rein serve RUN" in s.bad(404, "/rein/v1/run")["message"]
        assert s.good("/v1/train") == {"object": "list", "data": []}


def test_the_data_is_that_of_the_report():
    subprocess.run([REIN, "report", "one", "--output", "one.html"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    report = open("one.html").read().split('<script type="application/json" id="data">')[1].split("</script>")[0]
    with Server("one") as s:
        live = s.good("/rein/v1/run")
        (wanted,), (got,) = json.loads(report)["runs"], live["runs"]
        for part in ("metrics", "samples", "settings", "compare", "lengths", "summary", "steps", "notes"):
            assert got.get(part) == wanted.get(part) and part in got, part
        assert got["metrics"]["reward"]["steps"] == [1, 2] and got["samples"][-1]["step"] == 2


def test_only_what_is_new():
    with Server("one") as s:
        (run,) = s.good("/rein/v1/run?after=1")["runs"]
        assert run["metrics"]["reward"]["steps"] == [2] and [x["step"] for x in run["samples"]] == [2] and "settings" not in run
        (run,) = s.good("/rein/v1/run?after=2")["runs"]
        assert run["metrics"] == {} and run["samples"] == [] and run["steps"] == 2
        assert s.good("/rein/v1/run?after=-1") == s.good("/rein/v1/run")
        assert s.good("/rein/v1/run?after=9007199254740992")["runs"][0]["metrics"] == {}
        for wrong in ("", "x", "-2", "1.5", "1e3", "%2B1", "%201", "9007199254740993", "9" * 40, "0x1"):
            error = s.bad(400, f"/rein/v1/run?after={wrong}", param="after")
            assert "must be a step" in error["message"], wrong
            s.bad(400, f"/v1/history?after={wrong}", param="after")


def test_a_long_history_holds_nobody_up():
    """While it is read others are answered; too many readers are refused; a server that stops waits for them."""
    shutil.rmtree("long", ignore_errors=True)
    shutil.copytree("one", "long")
    with Server("long") as s:
        with open("long/history.jsonl", "w") as file:
            for step in range(1, 8001):
                file.write(json.dumps({"step": step, **{f"metric/{i}": step + i for i in range(40)}}) + "\n")
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = [pool.submit(s.ask, "/rein/v1/run") for _ in range(24)]
            waited = []
            while not all(a.done() for a in answers):
                began = time.time()
                s.good("/health")
                waited.append(time.time() - began)
        statuses = [a.result()[0] for a in answers]
        assert set(statuses) <= {200, 429} and 200 in statuses, statuses
        assert sorted(waited)[len(waited) // 2] < 1, waited
        (run,) = s.good("/rein/v1/run")["runs"]
        assert run["metrics"]["metric/0"]["of"] == 8000 and len(run["metrics"]["metric/0"]["steps"]) <= 2000
        with s.connect() as left:  # its client goes away, and the server stops
            left.sendall(b"GET /rein/v1/run HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.05)
        s.stop()


def group(step):
    """Two answers of one prompt that differ."""
    prompt = [16, 8, 5]
    return {"trajectories": [{"prompt_ids": prompt, "response_ids": [9, step % 7 + 3, 1], "reward": 1.0}, {"prompt_ids": prompt, "response_ids": [7, 7, 1], "reward": 0.0}]}


def test_it_grows_as_the_run_trains():
    shutil.rmtree("grows", ignore_errors=True)
    with Server("grows", "--model", "chatty", "--preset", "grpo", "--learning-rate", "1e-3") as s:
        (run,) = s.good("/rein/v1/run")["runs"]
        assert run["metrics"] == {} and run["samples"] == [] and "steps" not in run
        known = -1
        for step in (1, 2, 3):
            job = s.ask("/v1/train", {"trajectory_groups": [group(step)]})[2]
            end = time.time() + 120
            while s.good(f"/v1/train/{job['id']}")["status"] not in ("done", "failed"):
                assert time.time() < end
                time.sleep(0.02)
            (run,) = s.good(f"/rein/v1/run?after={known}")["runs"]
            assert run["metrics"]["loss"]["steps"] == [step] and run["steps"] == step, run["metrics"]["loss"]
            assert run["samples"][-1]["step"] == step and s.good("/rein/v1/status")["step"] == step
            known = step
        jobs = s.good("/v1/train")["data"]
        assert [job["step"] for job in jobs] == [3, 2, 1]  # the newest first
        assert jobs[0] == s.good(f"/v1/train/{jobs[0]['id']}") and jobs[0]["status"] == "done"


def test_names_and_texts_are_data():
    name = "<img src=x onerror=alert(1)>"
    shutil.rmtree("hostile", ignore_errors=True)
    shutil.copytree("one", "hostile")
    with open("hostile/trajectories/train/0003.jsonl", "w") as file:
        odd = group(1)
        odd["trajectories"][0]["metadata"] = {"prompt": "</script><script>alert(1)</script>", "pieces": [name, "\u2028", "\x01"]}
        file.write(json.dumps(odd) + "\n")
    with Server("hostile", "--name", name) as s:
        assert name not in s.ask("/")[2]
        status, headers, answer = s.ask("/rein/v1/status")
        assert status == 200 and answer["name"] == name and headers["Content-Type"] == "application/json"
        (run,) = s.good("/rein/v1/run")["runs"]
        assert run["samples"][-1]["groups"][0]["prompt"].startswith("</script>")
        assert run["samples"][-1]["groups"][0]["responses"][0]["pieces"][0] == name


def test_the_stream_that_the_page_reads():
    with Server("one") as s:
        body = {**chat(top_logprobs=5), "model": "one"}
        events = s.stream("/v1/chat/completions", body)
        tokens = [t for e in events for c in e["choices"] for t in (c["logprobs"] or {}).get("content", [])]
        assert tokens and all({"token", "logprob", "bytes", "top_logprobs"} <= set(t) for t in tokens)
        assert all(len(t["top_logprobs"]) == 5 for t in tokens) and events[0]["model"] == "one@2"


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAIL {name}")
            traceback.print_exc()
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    main()
