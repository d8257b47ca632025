"""Checks of draftlab's server with real clients: openai-python and plain HTTP. See README.md beside this file."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

import openai

KEY = "a-key-for-tests"
CONTEXT = 1024
MODEL = "m"
ASK = [{"role": "user", "content": "Name three colours."}]


class Server:
    """A draftlab serve process, from start to SIGTERM."""

    def __init__(self, program, args):
        self.program, self.args = program, args
        self.start(port=0)

    def start(self, port):
        # A file and not a pipe: nobody reads while the server writes.
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [self.program, "serve", "--json", "--port", str(port), "--served-model-name", MODEL, "--context", str(CONTEXT),
             "--max-running-requests", "4", "--max-queued-requests", "16", "--drain-timeout", "100s", *self.args],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, "DRAFTLAB_API_KEY": KEY})
        # One document of several lines: it ends with a line that is a closing brace.
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                break
        assert lines, f"the server did not start:\n{self.text()}"
        self.document = json.loads("".join(lines))
        self.url = self.document["url"]

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def wait(self, limit=600):
        """Waits until the server is healthy; until then it must say that it loads."""
        end = time.monotonic() + limit
        while True:
            status, body = self.request("GET", "/health")[:2]
            if status == 200:
                return
            assert status == 503 and body["error"]["code"] == "loading", (status, body)
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, f"not ready after {limit} s:\n{self.text()}"
            time.sleep(0.1)

    def request(self, method, path, body=None, headers=None):
        """Sends one request and returns status, body (JSON where it is) and headers."""
        where = urllib.parse.urlsplit(self.url)
        c = http.client.HTTPConnection(where.hostname, where.port, timeout=300)
        with contextlib.closing(c):
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            h = {"Authorization": "Bearer " + KEY}
            if body is not None:
                h["Content-Type"] = "application/json"
            c.request(method, path, body, {**h, **(headers or {})})
            r = c.getresponse()
            data = r.read()
            if r.headers.get("Content-Type", "").startswith("application/json"):
                data = json.loads(data) if data else None
            return r.status, data, r.headers

    def address(self):
        where = urllib.parse.urlsplit(self.url)
        return where.hostname, where.port

    def post(self, path, body, **headers):
        """The bytes of a POST request, for clients that behave as http.client does not."""
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    def stats(self):
        """The metrics of one value each, by name."""
        out = {}
        for line in self.request("GET", "/metrics")[1].decode().splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                out[name.split("{")[0]] = float(value)
        return out

    def quiet(self):
        """Waits until nothing runs or waits: what was cancelled is really gone."""
        end = time.monotonic() + 600
        while True:
            m = self.stats()
            if m["sglang:num_running_reqs"] + m["sglang:num_queue_reqs"] == 0:
                return m
            assert time.monotonic() < end, m
            time.sleep(0.02)

    def stop(self):
        """Ends the server as an init system does and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


def refused(kind, **call):
    """Returns the error of a request that must be refused in the given way."""
    try:
        call.pop("how")(**call)
    except kind as e:
        return e
    raise AssertionError(f"{call} was not refused")


def check_models(server, client):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL], models
    assert client.models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, how=client.models.retrieve, model="other")


def check_chat(server, client):
    a = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=24)
    assert a.object == "chat.completion" and a.choices[0].message.role == "assistant"
    assert a.choices[0].message.content and a.choices[0].finish_reason in ("stop", "length")
    assert a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens
    assert 0 < a.usage.completion_tokens <= 24 and a.usage.prompt_tokens > 5
    b = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=24)
    assert a.choices[0].message.content == b.choices[0].message.content, "greedy text differs between two calls"


def check_chat_stream(server, client):
    whole = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=24)
    events = list(client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=0, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    assert events[0].choices[0].delta.role == "assistant"
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == whole.choices[0].message.content, (text, whole)
    assert [e.choices[0].finish_reason for e in events if e.choices and e.choices[0].finish_reason] == [whole.choices[0].finish_reason]
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens and not events[-1].choices
    assert all(e.usage is None for e in events[:-1])


def check_sampling(server, client):
    def write(seed, **more):
        r = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=24, temperature=0.9, top_p=0.95, seed=seed, **more)
        return [c.text for c in r.choices]
    assert write(7) == write(7), "one seed, two texts"
    three = write(7, n=3)
    assert three[0] == write(7)[0] and len(set(three)) > 1, three
    spec = {"drafter": "ngram", "steps": 3}
    assert write(7, extra_body={"speculative": spec}) == write(7), "speculation changed a sampled text"
    plain = {"drafter": "none"}
    assert write(7, extra_body={"speculative": plain}) == write(7)
    one = client.completions.create(model=MODEL, prompt="The", max_tokens=8, temperature=0, logit_bias={"2": -100}).choices[0].text
    assert one == client.completions.create(model=MODEL, prompt="The", max_tokens=8, temperature=0.7, extra_body={"top_k": 1}).choices[0].text


def check_stop(server, client):
    prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9,"
    free = client.completions.create(model=MODEL, prompt=prompt, max_tokens=32, temperature=0).choices[0].text
    assert len(free) > 8, free
    stop = free[5:8]
    want = free[:free.index(stop)]
    r = client.completions.create(model=MODEL, prompt=prompt, max_tokens=32, temperature=0, stop=stop)
    assert r.choices[0].text == want and r.choices[0].finish_reason == "stop", (free, stop, r)
    events = client.completions.create(model=MODEL, prompt=prompt, max_tokens=32, temperature=0, stop=[stop, "never"], stream=True)
    assert "".join(e.choices[0].text for e in events) == want


def check_logprobs(server, client):
    r = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    assert b"".join(bytes(t.bytes) for t in content).decode(errors="replace").startswith(r.choices[0].message.content[:3])
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3
        assert t.top_logprobs[0].token == t.token and abs(t.top_logprobs[0].logprob - t.logprob) < 1e-4, t
        assert t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob >= t.top_logprobs[2].logprob
    r = client.completions.create(model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=4, logprobs=2)
    l = r.choices[0].logprobs
    assert len(l.tokens) == len(l.token_logprobs) == len(l.top_logprobs) == len(l.text_offset) == 4
    assert "".join(l.tokens) == r.choices[0].text and l.text_offset[0] == 0


def check_batch(server, client):
    r = client.completions.create(model=MODEL, prompt=["One", "Two"], n=2, max_tokens=4, temperature=0)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    assert r.choices[0].text == r.choices[1].text
    ids = client.completions.create(model=MODEL, prompt=[504, 253, 260], max_tokens=4, temperature=0, extra_body={"return_token_ids": True})
    assert len(ids.choices[0].token_ids) == ids.usage.completion_tokens and ids.usage.prompt_tokens == 3


def check_errors(server, client):
    chat = client.chat.completions.create
    e = refused(openai.BadRequestError, how=chat, model=MODEL, messages=ASK, temperature=-1)
    assert e.param == "temperature" and e.type == "invalid_request_error", e.body
    e = refused(openai.BadRequestError, how=chat, model=MODEL, messages=ASK, tools=[{"type": "function", "function": {"name": "f"}}])
    assert e.param == "tools" and e.code == "unsupported_parameter"
    e = refused(openai.BadRequestError, how=chat, model=MODEL, messages=ASK, extra_body={"nonsense": 1})
    assert e.param == "nonsense" and e.code == "unknown_parameter"
    e = refused(openai.BadRequestError, how=chat, model=MODEL, messages=[{"role": "user", "content": "word " * 3000}])
    assert e.code == "context_length_exceeded"
    e = refused(openai.BadRequestError, how=chat, model=MODEL, messages=ASK, max_tokens=100000)
    assert e.code == "context_length_exceeded" and e.param == "max_tokens"
    e = refused(openai.NotFoundError, how=chat, model="gpt-4", messages=ASK)
    assert e.code == "model_not_found"
    e = refused(openai.BadRequestError, how=client.completions.create, model=MODEL, prompt="a", echo=True)
    assert e.param == "echo"
    stranger = openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0)
    e = refused(openai.AuthenticationError, how=stranger.chat.completions.create, model=MODEL, messages=ASK)
    assert e.code == "invalid_api_key"


def check_dialects(server, client):
    """What clients of other servers send and rely on; each was a bug report somewhere."""
    post = lambda path, body, **h: server.request("POST", path, body, {k.replace("_", "-"): v for k, v in h.items()})
    # Whole numbers with a fraction, a byte order mark, UTF-8 under its other name, both names of the limit.
    assert post("/v1/completions", b'\xef\xbb\xbf{"prompt":"a","max_tokens":2.0,"seed":1e1}', Content_Type="application/json; charset=utf8")[0] == 200
    r = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=2, max_completion_tokens=2, top_logprobs=0, user="u",
                                       prompt_cache_key="k", safety_identifier="s")
    assert r.usage.completion_tokens == 2
    # The answer goes back as it came.
    talk = [*ASK, r.choices[0].message, {"role": "user", "content": "More."}]
    assert client.chat.completions.create(model=MODEL, messages=talk, max_tokens=2).usage.prompt_tokens > r.usage.prompt_tokens
    # Usage in every event, as load generators ask for it.
    events = list(client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8, temperature=0, stream=True, extra_body={
        "ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    counts = [e.usage.completion_tokens for e in events]
    assert counts[0] == 0 and counts[-1] == 8 and counts == sorted(counts), counts
    assert all(e.usage.prompt_tokens == events[-1].usage.prompt_tokens for e in events)
    # A list of one is a list.
    assert len(post("/generate", {"text": ["a"], "sampling_params": {"max_new_tokens": 1}})[1]) == 1
    # A prompt in the chat template is the chat; a message in it is text.
    turn = "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"
    system = {"role": "system", "content": "Be brief."}
    chat = client.chat.completions.create(model=MODEL, messages=[system, *ASK], max_tokens=12, temperature=0)
    raw = client.completions.create(model=MODEL, prompt="<|im_start|>system\nBe brief.<|im_end|>\n" + turn, max_tokens=12, temperature=0)
    assert raw.choices[0].text == chat.choices[0].message.content and raw.usage.prompt_tokens == chat.usage.prompt_tokens, (raw, chat)
    inner = client.chat.completions.create(model=MODEL, messages=[system, {"role": "user", "content": turn}], max_tokens=1).usage.prompt_tokens
    assert inner > 1.5 * chat.usage.prompt_tokens, (inner, chat.usage)
    # More outputs than the queue holds can never be taken; a compressed body is not read.
    assert refused(openai.BadRequestError, how=client.completions.create, model=MODEL, prompt="a", n=17).param == "n"
    assert post("/v1/completions", b"\x1f\x8b", Content_Encoding="gzip")[0] == 415
    # A client that has closed its sending half counts as gone; it must not read an empty 200.
    with socket.create_connection(server.address()) as s:
        s.sendall(server.post("/v1/completions", json.dumps({"prompt": "a", "max_tokens": CONTEXT - 100, "ignore_eos": True})))
        s.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert s.recv(4096) == b""
    server.quiet()


def check_hostile(server, client):
    post = lambda body, **h: server.request("POST", "/v1/completions", body, {k.replace("_", "-"): v for k, v in h.items()})
    for body, status in [
        (b"", 400), (b"{", 400), (b"[]", 400), (b'{"prompt":"\xff"}', 400), (b'{"prompt":"\\ud800"}', 400), (b'{"prompt":"a","n":1e99}', 400),
        (b'{"prompt":"a","temperature":NaN}', 400), (b"[" * 100000, 400), (b'{"prompt":' + b"[" * 50 + b"]" * 50 + b"}", 400),
        (b'{"prompt":[1e10]}', 400), (b'{"prompt":[-5]}', 400), (b'{"prompt":"' + b"a" * (5 << 20) + b'"}', 413),
    ]:
        got, doc, _ = post(body)
        assert got == status and doc["error"]["message"], (body[:60], got, doc)
    assert post(b"{}", Content_Type="text/plain")[0] == 415
    assert server.request("GET", "/v1/completions")[0] == 405
    assert server.request("GET", "/nowhere")[0] == 404
    for raw in [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"A" * 100000]:
        with socket.create_connection(server.address()) as s:
            with contextlib.suppress(OSError):
                s.sendall(raw)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
    assert server.request("GET", "/health")[0] == 200


def check_gone(server, client):
    """Clients that leave, in the middle of a stream and before the first token, leave nothing running."""
    body = json.dumps({"prompt": "Count to a thousand: 1, 2,", "max_tokens": CONTEXT - 100, "ignore_eos": True, "stream": True})
    for read in (0, 200, 200, 0, 200):
        with socket.create_connection(server.address()) as s:
            s.sendall(server.post("/v1/completions", body))
            got = 0
            while got < read:
                got += len(s.recv(4096))
    server.quiet()
    assert client.completions.create(model=MODEL, prompt="a", max_tokens=1).usage.completion_tokens == 1


def check_slow_readers(server, client):
    """Streams that nobody reads cost others nothing, and leave nothing when their clients give up."""
    body = json.dumps({"prompt": "Count to a thousand: 1, 2,", "max_tokens": CONTEXT - 100, "ignore_eos": True, "stream": True})
    with contextlib.ExitStack() as stack:
        for _ in range(3):  # one place stays free
            s = stack.enter_context(socket.create_connection(server.address()))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(server.post("/v1/completions", body))
        for i in range(3):
            r = client.completions.create(model=MODEL, prompt=f"One, two, {i}", max_tokens=8, temperature=0, extra_body={"ignore_eos": True})
            assert r.usage.completion_tokens == 8, r
    server.quiet()


def check_crowd(server, client):
    """A thousand connections at once: each gets an answer, the served ones the same, and the next request is served."""
    want = client.completions.create(model=MODEL, prompt="a", max_tokens=2, temperature=0).choices[0].text
    head = server.post("/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2, "temperature": 0}), Connection="close")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(server.address(), timeout=300)) for _ in range(1000)]
        for s in crowd:
            s.sendall(head)
        answers = []
        for s in crowd:
            data = b""
            while part := s.recv(65536):
                data += part
            head_of, _, rest = data.partition(b"\r\n\r\n")
            answers.append((int(head_of.split()[1]), json.loads(rest)))
    assert sorted({status for status, _ in answers}) in ([200], [200, 429]), {status for status, _ in answers}
    assert all(doc["choices"][0]["text"] == want for status, doc in answers if status == 200)
    server.quiet()
    assert client.completions.create(model=MODEL, prompt="a", max_tokens=2, temperature=0).choices[0].text == want


def check_full_queue(server, client):
    """More requests than places: each is answered, some with 429 and Retry-After, and openai-python's own retries get through."""
    results = []
    def one():
        results.append(server.request("POST", "/generate", {"text": "Tell me a story.", "sampling_params": {"max_new_tokens": 64, "ignore_eos": True}}))
    threads = [threading.Thread(target=one) for _ in range(60)]  # there are 20 places
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    statuses = sorted({r[0] for r in results})
    assert statuses == [200, 429] and len(results) == 60, statuses
    for status, doc, headers in results:
        if status == 429:
            assert 1 <= int(headers["Retry-After"]) <= 60 and doc["error"]["code"] == "queue_full"
        else:
            assert doc["meta_info"]["completion_tokens"] == 64
    server.quiet()


async def many(server):
    async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=10) as client:
        async def one(i):
            text = ""
            stream = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": f"Say a word about {i}."}], max_tokens=12, temperature=0, stream=True)
            async for e in stream:
                text += e.choices[0].delta.content or ""
            return text
        texts = await asyncio.gather(*(one(i % 4) for i in range(16)))
    assert all(texts) and all(texts[i] == texts[i % 4] for i in range(16)), "a text depends on what runs beside it"


def check_async(server, client):
    asyncio.run(many(server))


def check_generate(server, client):
    params = {"temperature": 0, "max_new_tokens": 32}
    status, doc, _ = server.request("POST", "/generate", {"text": "one two one two one two", "sampling_params": params,
                                                          "speculative": {"drafter": "ngram", "steps": 3}})
    assert status == 200, doc
    meta = doc["meta_info"]
    assert len(doc["output_ids"]) == meta["completion_tokens"] and meta["finish_reason"]["type"] in ("stop", "length")
    assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"] and meta["spec_accept_histogram"] == meta["spec_correct_drafts_histogram"]
    assert abs(meta["accept_length"] - 1 - meta["spec_num_correct_drafts"] / meta["spec_verify_ct"]) < 1e-9
    assert abs(meta["spec_accept_length"] - meta["completion_tokens"] / meta["spec_verify_ct"]) < 1e-9
    status, body, headers = server.request("POST", "/generate", {"text": "one two one two one two", "sampling_params": params, "stream": True,
                                                                 "speculative": {"drafter": "none"}})
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""] and headers["Content-Type"] == "text/event-stream"
    assert json.loads(events[-3][6:])["output_ids"] == doc["output_ids"], "speculation changed a greedy text"


def check_info(server, client):
    info = server.request("GET", "/get_server_info")[1]
    assert info["context_length"] == CONTEXT and info["served_model_name"] == MODEL and info["max_running_requests"] == 4
    assert server.request("GET", "/model_info")[1]["is_generation"] is True
    server.quiet()
    assert server.request("POST", "/flush_cache")[0] == 200
    assert server.request("GET", "/health_generate")[0] == 200
    m = server.quiet()
    for name in ("sglang:generation_tokens_total", "sglang:prompt_tokens_total", "draftlab:phase_seconds_total", "draftlab:steps_total"):
        assert m[name] > 0, (name, m.get(name))
    assert server.request("GET", "/v1/models", headers={"Authorization": ""})[0] == 401


def check_killed(server, client):
    """kill -9 within a stream: the client notices, and a server started again at the same port gives the same text."""
    ask = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    want = client.completions.create(**ask).choices[0].text
    events = iter(client.completions.create(model=MODEL, prompt="Once", max_tokens=CONTEXT - 100, stream=True, extra_body={"ignore_eos": True}))
    next(events)
    server.process.kill()
    server.process.wait()
    try:
        whole = list(events)[-1].choices[0].finish_reason
    except Exception as e:  # which one is openai-python's affair
        whole = None
        assert not isinstance(e, openai.APIStatusError), e
    assert whole is None, "the stream of a killed server seems whole"
    refused(openai.APIConnectionError, how=client.completions.create, **ask)
    server.start(port=server.address()[1])
    server.wait()
    assert client.completions.create(**ask).choices[0].text == want, "another text after the restart"


def check_ledger(server, client):
    """What /debug/cycles says of a request balances to the nanosecond, and a trace of it is written."""
    status, before, _ = server.request("GET", "/debug/cycles?limit=0")
    assert status == 200 and before["cycles"] == [], before
    status, doc, _ = server.request("POST", "/start_profile", {"activities": ["CPU", "GPU"], "profile_by_stage": False})
    assert status == 200 and doc["without_effect"] == ["activities"], doc
    client.completions.create(model=MODEL, prompt="Once", max_tokens=24, extra_body={"ignore_eos": True})
    status, doc, _ = server.request("POST", "/stop_profile")
    assert status == 200 and doc["cycles"] > 1, doc
    with open(doc["file"]) as f:
        events = json.load(f)["traceEvents"]
    os.remove(doc["file"])
    assert {e["ph"] for e in events} == {"M", "X"} and all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X")
    status, doc, _ = server.request("GET", f"/debug/cycles?limit=4000&since={before['totals']['seq']}")
    records, totals = doc["cycles"], doc["totals"]
    assert status == 200 and [r["seq"] for r in records] == list(range(before["totals"]["seq"] + 1, totals["seq"] + 1))
    for r, after in zip(records, records[1:]):
        assert r["start_ns"] + r["wall_ns"] == after["start_ns"], (r, after)
    for r in records:
        assert r["kind"] == "idle" or r["wall_ns"] == sum(r["phase_ns"].values()) and r["phase_ns"]["other"] == sum(r["other_ns"].values()), r
    assert totals["wall_ns"] == totals["idle_ns"] + sum(totals["phase_ns"].values()), totals
    assert sum(r.get("emitted", 0) for r in records) == totals["emitted"] - before["totals"]["emitted"] == 23  # the prompt gave one


def check_drain(server, client):
    """SIGTERM under load: what runs or waits ends whole, new requests are refused, the program ends with status 0."""
    finished, lock = [], threading.Lock()
    begun = threading.Semaphore(0)

    def one():
        last, first = None, True
        for last in client.completions.create(model=MODEL, prompt="Once", max_tokens=64, stream=True, extra_body={"ignore_eos": True}):
            if first:
                begun.release()
            first = False
        with lock:
            finished.append(last.choices[0].finish_reason)

    threads = [threading.Thread(target=one) for _ in range(12)]
    for t in threads:
        t.start()
    assert begun.acquire(timeout=600), "no stream has begun"
    end = time.monotonic() + 600
    while sum(server.stats()[f"sglang:num_{k}_reqs"] for k in ("running", "queue")) + len(finished) < len(threads):
        assert time.monotonic() < end, "not all requests have arrived"
    status = []
    ending = threading.Thread(target=lambda: status.append(server.stop()))
    ending.start()
    for t in [*threads, ending]:
        t.join()
    assert finished == ["length"] * len(threads), finished
    assert status == [0], (status, server.text())
    assert "The server is fired up and ready to roll!" in server.text() and "Traceback" not in server.text()


CHECKS = [check_models, check_chat, check_chat_stream, check_sampling, check_stop, check_logprobs, check_batch, check_errors, check_dialects, check_hostile,
          check_gone, check_slow_readers, check_crowd, check_full_queue, check_async, check_generate, check_info, check_ledger, check_killed, check_drain]


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: suite.py DRAFTLAB [ARGUMENTS OF draftlab serve]")
    server = Server(sys.argv[1], sys.argv[2:])
    failed = 0
    try:
        server.wait()
        client = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=300)
        for check in CHECKS:
            begin = time.monotonic()
            try:
                check(server, client)
                verdict = "ok"
            except Exception:  # each check stands alone: the others still tell something
                traceback.print_exc()
                failed, verdict = failed + 1, "FAILED"
            print(f"{check.__name__[6:]:<12} {verdict:<7} {time.monotonic() - begin:6.1f} s", flush=True)
        if failed:
            print("the server's log:\n" + server.text()[-4000:])
    finally:
        if server.process.poll() is None:
            server.process.kill()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
