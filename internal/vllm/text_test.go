// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"net/http"
	"strings"
	"testing"
)

// textStream is a streamed answer of the completions API.
const textStream = "data: {\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"漢\",\"finish_reason\":null}]}\r\n\r\n" +
	": a comment\n\n" +
	"data: {\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"

// TestCompletionsPass: a body of the completions API goes to decode as it is, but for handles, and the answer comes
// back to the byte. No Encoder is asked, whatever is in it.
func TestCompletionsPass(t *testing.T) {
	answer := `{"object":"text_completion","choices":[{"index":0,"text":"\u6f22 ok","finish_reason":"stop"}]}`
	pd := newStub(t, inTurn(says(200, answer), func(_ int, _ received, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = w.Write([]byte(textStream))
	}))
	e := newStub(t, encodes(""))
	f := dynamic(t, nil)
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.join(t, Encode, e.URL, ""))
	body := `{ "prompt":["a", [1,2]],"logprobs":2, "echo":true,"x":1.50,"messages":[{"role":"user","content":[` + image("AAAA") + `]}],"suffix":"é\u00e9"}`
	got := f.send(t, http.MethodPost, pathText, []byte(body), "X-Request-Id", "mine")
	if got.status != 200 || string(got.body) != answer || got.header.Get("X-Request-Id") != "mine" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if r := pd.calls()[0]; r.path != pathText || r.body != body || r.header.Get("X-Request-Id") != "mine" {
		t.Errorf("decode got %s %s", r.path, r.body)
	}
	got = f.send(t, http.MethodPost, pathText, []byte(`{"prompt":"a","ec_transfer_params":{"x":1},"stream":true}`))
	if string(got.body) != textStream || pd.calls()[1].body != `{"prompt":"a","stream":true}` {
		t.Errorf("got %q for %s", got.body, pd.calls()[1].body)
	}
	if n := len(e.calls()); n != 0 {
		t.Errorf("%d calls to the Encoder", n)
	}
}

// TestCompletionsWithPrefillApart: prefill gets the prompt first, and decode learns where it is.
func TestCompletionsWithPrefillApart(t *testing.T) {
	p := newStub(t, says(200, `{"choices":[],"kv_transfer_params":{"where":"there"}}`))
	d := newStub(t, says(200, completion))
	f := dynamic(t, nil)
	works(t, f.join(t, Prefill, p.URL, ""))
	works(t, f.join(t, Decode, d.URL, ""))
	works(t, f.send(t, http.MethodPost, pathText, []byte(`{"prompt":"a","max_tokens":9}`)))
	first, then := p.calls()[0], d.calls()[0]
	if first.path != pathText || !strings.Contains(first.body, `"max_tokens":1`) || !strings.Contains(string(first.chat.KV), `"do_remote_decode":true`) {
		t.Errorf("prefill got %s %s", first.path, first.body)
	}
	if then.path != pathText || string(then.chat.KV) != `{"where":"there"}` || !strings.Contains(then.body, `"max_tokens":9`) {
		t.Errorf("decode got %s %s", then.path, then.body)
	}
}

// TestCompletionsFail over to another worker, and keep the words of one that refuses.
func TestCompletionsFail(t *testing.T) {
	bad, good := newStub(t, hangUp), newStub(t, says(200, completion))
	f := dynamic(t, nil)
	works(t, f.join(t, PrefillDecode, bad.URL, ""))
	works(t, f.join(t, PrefillDecode, good.URL, ""))
	for range 4 {
		works(t, f.send(t, http.MethodPost, pathText, []byte(`{"prompt":"a"}`)))
	}
	f = dynamic(t, nil)
	refuses := newStub(t, says(400, `{"error":{"message":"no suffix","type":"BadRequestError","param":"suffix","code":400}}`))
	works(t, f.join(t, PrefillDecode, refuses.URL, ""))
	fails(t, f.send(t, http.MethodPost, pathText, []byte(`{"prompt":"a","suffix":"b"}`)), 400, "no suffix")
	fails(t, f.send(t, http.MethodPost, pathText, []byte(`[`)), 400, "JSON")
	if n := len(refuses.calls()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}
