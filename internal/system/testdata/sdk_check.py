# SPDX-License-Identifier: Apache-2.0
"""Drives a gateway with the official OpenAI SDK. Usage: sdk_check.py BASE_URL

Prints one line per check and exits with 1 if one failed. The model behind the gateway is the one of
parrot_test.go: it repeats what follows "repeat after me: ", rolls letters when asked to "roll dice", and
else answers with letters that depend on all that it was shown.
"""

import asyncio
import base64
import json
import struct
import sys
import traceback
import zlib

import openai

BASE = sys.argv[1] + "/v1"
# No retries: a failure must show. The time-out is far above what any call takes, and no check may hit it.
client = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=30)
MODEL = "modelled"
CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


def same(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, want {want!r}")


def png(w, h, seed):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((x * 3 + y * seed + c) % 256 for x in range(w) for c in range(3)) for y in range(h))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def image(seed, w=56, h=56):
    url = "data:image/png;base64," + base64.b64encode(png(w, h, seed)).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def text(s):
    return {"type": "text", "text": s}


def user(*parts):
    return {"role": "user", "content": parts[0] if len(parts) == 1 and isinstance(parts[0], str) else list(parts)}


def ask(*messages, **more):
    more.setdefault("temperature", 0)
    return client.chat.completions.create(model=MODEL, messages=list(messages), **more)


def say(*messages, **more):
    """The text of a whole answer."""
    return ask(*messages, **more).choices[0].message.content


def stream(*messages, **more):
    """The chunks of a streamed answer."""
    with ask(*messages, stream=True, **more) as s:
        return list(s)


def joined(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def raises(kind, f, *args, **more):
    try:
        f(*args, **more)
    except kind as e:
        if type(e) is not kind:
            raise AssertionError(f"got a {type(e).__name__}, want a {kind.__name__}") from e
        return e
    raise AssertionError(f"no {kind.__name__} was raised")


@check
def chat():
    r = ask(user("hello"), max_tokens=5)
    same(r.object, "chat.completion", "object")
    same(r.model, MODEL, "model")
    same((len(r.choices), r.choices[0].index, r.choices[0].message.role), (1, 0, "assistant"), "choice")
    same((len(r.choices[0].message.content), r.choices[0].finish_reason), (5, "length"), "length and reason")
    same((r.choices[0].logprobs, r.choices[0].message.refusal, r.choices[0].message.tool_calls), (None, None, None), "nulls")
    assert r.id.startswith("chatcmpl-") and r.created > 1_700_000_000, r


@check
def chat_ends_by_itself():
    r = ask(user("repeat after me: red and blue"))
    same((r.choices[0].message.content, r.choices[0].finish_reason), ("red and blue", "stop"))


@check
def chat_stream():
    whole = say(user("hello"))
    chunks = stream(user("hello"))
    same(joined(chunks), whole, "text")
    same(chunks[0].choices[0].delta.role, "assistant", "role")
    same([c.choices[0].finish_reason for c in chunks], [None] * (len(chunks) - 1) + ["stop"], "reasons")
    same({(c.id, c.model, c.object, c.created) for c in chunks}, {(chunks[0].id, MODEL, "chat.completion.chunk", chunks[0].created)}, "heads")
    same([c.usage for c in chunks], [None] * len(chunks), "usage")


@check
def one_image():
    a, again, b = (say(user(text("what?"), image(i))) for i in (1, 1, 2))
    same(again, a, "the same question's answer")
    assert a != b, f"two pictures are answered alike: {a}"


@check
def two_images_and_their_order():
    ab = say(user(text("what?"), image(1), text("and"), image(2)))
    ba = say(user(text("what?"), image(2), text("and"), image(1)))
    assert ab != ba, f"the order of pictures changes nothing: {ab}"
    same(joined(stream(user(text("what?"), image(1), text("and"), image(2)))), ab, "streamed text")


@check
def same_image_twice():
    none, once, twice = (ask(user(text("what?"), *[image(1)] * n)) for n in (0, 1, 2))
    rows = once.usage.prompt_tokens - none.usage.prompt_tokens
    assert rows > 0, "the picture takes no place in the prompt"
    same(twice.usage.prompt_tokens - once.usage.prompt_tokens, rows, "tokens of the second use")


@check
def several_turns():
    first = user(text("what?"), image(1))
    answer = say(first)
    turns = [{"role": "system", "content": "be brief"}, first, {"role": "assistant", "content": answer}, user(image(2), text("and this?"))]
    second = say(*turns)
    turns[1] = user(text("what?"), image(3))
    assert say(*turns) != second, "the first turn's picture is forgotten"
    # What a client got can be sent back as it is.
    again = ask(first).choices[0].message
    assert say(first, again, user("go on"))


@check
def usage():
    r = ask(user("repeat after me: abc"))
    u = r.usage
    same((u.completion_tokens, u.total_tokens), (4, u.prompt_tokens + 4), "three letters and the end, and the sum")
    assert u.prompt_tokens > len("repeat after me: abc"), u


@check
def usage_of_a_stream():
    chunks = stream(user("repeat after me: abc"), stream_options={"include_usage": True})
    same(chunks[-1].choices, [], "choices of the last chunk")
    same([c.usage for c in chunks[:-1]], [None] * (len(chunks) - 1), "usage before the last chunk")
    same(chunks[-1].usage.to_dict(), {k: v for k, v in ask(user("repeat after me: abc")).usage.to_dict().items() if v is not None}, "usage")


@check
def stop_strings():
    prompt = user("repeat after me: one two three four")
    for stop, want in (("three", "one two "), (["four", " two"], "one"), (["five"], "one two three four"), ("thr", "one two ")):
        r = ask(prompt, stop=stop)
        same((r.choices[0].message.content, r.choices[0].finish_reason), (want, "stop"), f"text up to {stop!r}")
        same(joined(stream(prompt, stop=stop)), want, f"streamed text up to {stop!r}")


@check
def max_tokens():
    prompt = user("repeat after me: one two three")
    for more in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        r = ask(prompt, **more)
        same((r.choices[0].message.content, r.choices[0].finish_reason, r.usage.completion_tokens), ("one", "length", 3), str(more))
        chunks = stream(prompt, **more)
        same((joined(chunks), chunks[-1].choices[0].finish_reason), ("one", "length"), f"streamed {more}")


@check
def seeds():
    def roll(**more):
        return say(user("roll dice"), max_tokens=40, **more)

    a, again, other = (roll(temperature=0.8, seed=s) for s in (7, 7, 8))
    same(again, a, "the text of an equal seed")
    assert a != other, f"two seeds roll the same: {a}"
    assert roll(temperature=0.8) != roll(temperature=0.8), "without a seed the rolls are equal"
    same(roll(temperature=0), roll(temperature=0, seed=3), "the likeliest text")
    same(joined(stream(user("roll dice"), max_tokens=40, temperature=0.8, seed=7)), a, "streamed text of an equal seed")


@check
def completions():
    def complete(prompt, **more):
        return client.completions.create(model=MODEL, prompt=prompt, temperature=0, **more)

    r = complete("repeat after me: Grüße 🎨", max_tokens=30, extra_headers={"X-Request-Id": "sdk-text"})
    same((r.object, r.id, r._request_id, r.model), ("text_completion", "cmpl-sdk-text", "sdk-text", MODEL), "head")
    same((r.choices[0].text, r.choices[0].finish_reason, r.choices[0].logprobs), ("Grüße 🎨", "stop", None), "choice")
    same([c.text for c in complete(["repeat after me: a", "repeat after me: b"], n=2).choices], ["a", "a", "b", "b"], "texts")
    same(complete([list(b"repeat after me: ids")]).choices[0].text, "ids", "text of token ids")
    same(complete("repeat after me: x", echo=True).choices[0].text, "repeat after me: xx", "echo")
    same(complete("repeat after me: ab", logprobs=2).choices[0].logprobs.tokens, ["a", "b", ""], "tokens")
    with complete("repeat after me: 漢字", stream=True, stream_options={"include_usage": True}) as s:
        chunks = list(s)
    same("".join(c.choices[0].text for c in chunks if c.choices), "漢字", "streamed text")
    same(chunks[-1].usage.completion_tokens, len("漢字".encode()) + 1, "tokens")
    e = raises(openai.BadRequestError, complete, "x", echo=True, logprobs=1)
    same((e.status_code, e.param), (400, "logprobs"), "error")
    raises(openai.NotFoundError, client.completions.create, model="nope", prompt="x")


@check
def unknown_fields():
    r = ask(user("repeat after me: abc"), extra_body={"x_unknown": {"a": ["é", 1.50]}}, user="somebody", metadata={"a": "b"}, store=False)
    same(r.choices[0].message.content, "abc", "text")


@check
def several_choices():
    r = ask(user("repeat after me: abc"), n=3, logprobs=True, top_logprobs=2)
    same([(c.index, c.message.content) for c in r.choices], [(0, "abc"), (1, "abc"), (2, "abc")], "choices")
    same(["".join(t.token for t in c.logprobs.content) for c in r.choices], ["abc"] * 3, "tokens")
    same({len(t.top_logprobs) for c in r.choices for t in c.logprobs.content}, {2}, "alternatives")


@check
def tools_are_refused():
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    e = raises(openai.BadRequestError, ask, user("hello"), tools=[tool])
    same(e.param, "tools", "param")
    assert ask(user("hello"), tools=[], tool_choice="none", max_tokens=2).choices, "no tools at all are refused"


@check
def models():
    same([m.id for m in client.models.list()], [MODEL], "models")
    same(client.models.list().data[0].object, "model", "object")


@check
def bad_request():
    e = raises(openai.BadRequestError, ask, user("hello"), temperature=-1)
    same((e.status_code, e.param, e.type, e.code), (400, "temperature", "BadRequestError", "400"), "error")
    assert "temperature must be non-negative, got -1" in e.message, e.message
    e = raises(openai.BadRequestError, ask)
    assert "at least one message" in e.message, e.message


@check
def bad_image():
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,bm90IGFuIGltYWdl"}}
    for more in ({}, {"stream": True}):
        e = raises(openai.BadRequestError, ask, user(text("what?"), image(1), broken), **more)
        same(e.param, "messages[0].content[2]", "param")
        assert "cannot identify image file" in e.message, e.message


@check
def not_found():
    e = raises(openai.NotFoundError, client.chat.completions.create, model="nope", messages=[user("hello")])
    same((e.status_code, e.param, e.type), (404, "model", "NotFoundError"), "error")
    assert "`nope` does not exist" in e.message and MODEL in e.message, e.message
    same(raises(openai.NotFoundError, client.embeddings.create, model=MODEL, input="x").status_code, 404, "an unknown path's status")


@check
def too_large():
    # Larger than what the kernel buffers, so that the answer comes while the body is still being sent.
    e = raises(openai.APIStatusError, ask, user("x" * (24 << 20)))
    same(e.status_code, 413, "status")
    assert "exceeds the limit of 1048576 bytes" in e.message, e.message
    assert say(user("hello")), "no answer after it"


@check
def multi_byte_text():
    words = "Grüße, 漢字かな交じり文, Ελληνικά, 👩‍🚀🎨🇺🇳, \u0000\u2028 نص"
    prompt = user("repeat after me: " + words)
    same(say(prompt), words, "text")
    chunks = stream(prompt)
    same(joined(chunks), words, "streamed text")
    for c in chunks:
        assert "\ufffd" not in (c.choices[0].delta.content or ""), f"a character was cut: {c}"


@check
def raw_stream():
    words = "漢字 🎨 é"
    got, raw = "", b""
    with client.chat.completions.with_streaming_response.create(
        model=MODEL, temperature=0, stream=True, messages=[user("repeat after me: " + words)]
    ) as r:
        same(r.headers["content-type"], "text/event-stream; charset=utf-8", "content type")
        for b in r.iter_bytes(1):
            raw += b
    for event in raw.decode().removesuffix("\n\n").split("\n\n"):
        assert event.startswith("data: "), event
        if event != "data: [DONE]":
            got += json.loads(event[6:])["choices"][0]["delta"]["content"]
    same(got, words, "text")
    assert raw.endswith(b"data: [DONE]\n\n"), raw[-100:]


@check
def leaving_a_stream():
    for _ in range(6):  # more than the worker has places
        with ask(user("roll dice"), stream=True, max_tokens=1500) as s:
            next(iter(s))
    assert say(user("hello"), timeout=5), "no answer after it"


@check
def request_id():
    r = ask(user("hello"))
    assert r._request_id and r.id == "chatcmpl-" + r._request_id, (r.id, r._request_id)
    r = ask(user("hello"), extra_headers={"X-Request-Id": "sdk-check-1"})
    same((r._request_id, r.id), ("sdk-check-1", "chatcmpl-sdk-check-1"), "ids")
    e = raises(openai.BadRequestError, ask, user("hello"), top_p=7, extra_headers={"X-Request-Id": "sdk-check-2"})
    same(e.request_id, "sdk-check-2", "id of an error")


@check
def timeouts_are_the_clients():
    fresh = user(text("what?"), image(77))
    raises(openai.APITimeoutError, ask, fresh, timeout=0.005)  # a fresh encode takes 20 ms
    assert say(fresh, timeout=30), "no answer after it"


@check
def eight_at_once():
    want = [say(user(text("what?"), image(i % 4))) for i in range(8)]

    async def one(c, i):
        args = dict(model=MODEL, temperature=0, messages=[user(text("what?"), image(i % 4))])
        if i % 2:
            return (await c.chat.completions.create(**args)).choices[0].message.content
        return joined([chunk async for chunk in await c.chat.completions.create(stream=True, **args)])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=30) as c:
            return await asyncio.gather(*(one(c, i) for i in range(8)))

    same(asyncio.run(all_of_them()), want, "answers")


def main():
    failed = 0
    for f in CHECKS:
        name = f.__name__.replace("_", " ")
        try:
            f()
            print(f"ok    {name}", flush=True)
        except Exception as e:
            failed += 1
            where = traceback.extract_tb(e.__traceback__)
            line = next(s.lineno for s in reversed(where) if s.filename == __file__ and s.name not in ("same", "raises"))
            print(f"FAIL  {name} (line {line}): {type(e).__name__}: {e}", flush=True)
    print(f"sdk: {len(CHECKS)} checks with openai {openai.__version__}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
