// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"afterimage/internal/openai"
)

// The tests of this file assert what vLLM's tests of the same names do (test_epd_proxy_retry.py).

// fleet is a static fleet of stubs.
type fleet struct {
	*front
	e, p, d []*stub
}

// newStatic returns a Front before n Encoders, P/Ds that decode answers for, and prefill workers if split.
func newStatic(t *testing.T, encoders int, split bool, decode func(int, received, http.ResponseWriter), adjust func(*Config)) *fleet {
	t.Helper()
	f := &fleet{}
	var static []Instance
	for range encoders {
		s := newStub(t, encodes(""))
		f.e = append(f.e, s)
		static = append(static, Instance{Role: Encode, URL: s.URL, Replicas: 1})
	}
	s := newStub(t, decode)
	f.d = append(f.d, s)
	role := PrefillDecode
	if split {
		role = Decode
		p := newStub(t, inTurn(says(200, `{"kv_transfer_params":{"remote":1}}`), says(200, `{"kv_transfer_params":{"remote":2}}`)))
		f.p = append(f.p, p)
		static = append(static, Instance{Role: Prefill, URL: p.URL, Replicas: 1})
	}
	static = append(static, Instance{Role: role, URL: s.URL, Replicas: 1})
	f.front = newFront(t, func(c *Config) {
		c.Static, c.Routing, c.ShortNames = static, RoundRobin, false
		if adjust != nil {
			adjust(c)
		}
	})
	return f
}

// whole is a body that has come.
type whole []byte

func (w whole) Bytes() []byte { return w }
func (whole) More() error     { return io.EOF }

func envelope(t *testing.T, body []byte) *openai.Envelope {
	t.Helper()
	e, err := openai.ReadEnvelope(whole(body), 64, newNames().taps().tap)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMaybePrefillLeavesTheCallerBodyUntouched(t *testing.T) {
	body := []byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9,"messages":[]}`)
	before := bytes.Clone(body)
	e := envelope(t, body)
	ed := openai.Edit{Drop: handles}
	got := bytes.Join(e.Rewrite(prefillEdit(e, ed)), nil)
	want := `{"model":"m","stream":false,"max_completion_tokens":1,"messages":[],"kv_transfer_params":` + string(noTransfer) + `,"max_tokens":1}`
	if string(got) != want {
		t.Errorf("prefill gets\n%s, want\n%s", got, want)
	}
	if again := bytes.Join(e.Rewrite(ed), nil); !bytes.Equal(again, before) || !bytes.Equal(body, before) || ed.Set != nil {
		t.Errorf("the caller's body became %s", again)
	}
}

func TestImageBatchesPreserveItemIdentity(t *testing.T) {
	for batch, sizes := range map[int][]int{0: {3, 3}, 1: {1, 1, 1, 1, 1, 1}, 2: {1, 1, 2, 2}} {
		for _, rewrite := range []bool{true, false} {
			t.Run(fmt.Sprintf("batch %d rewrite %v", batch, rewrite), func(t *testing.T) {
				f := newStatic(t, 2, false, says(200, completion), func(c *Config) { c.MaxBatch, c.NoRewrite = batch, !rewrite })
				consumer := f.reg.find(f.d[0].URL)
				consumer.Addresses = []string{"tcp://d:1"}
				// The engine names media for itself: by position in the call, and by which Encoder it is.
				for k, e := range f.e {
					e.answer = func(n int, r received, w http.ResponseWriter) {
						var entries []string
						for i := len(r.chat.parts(t)) - 1; i >= 0; i-- {
							name := fmt.Sprintf("engine-%s", r.chat.parts(t)[i].Image)
							entries = append(entries, fmt.Sprintf(`%q:{"item_indices":[%d],"metadata":{"image_grid_thw":[[1,%d,16]]}}`, name, i, k))
						}
						fmt.Fprintf(w, `{"ec_transfer_params":{%s}}`, strings.Join(entries, ","))
					}
				}
				var parts []string
				for i := range 6 {
					parts = append(parts, image(fmt.Sprintf("AAA%d", i)))
				}
				body := bytes.Replace(chat(parts...), []byte(`"model"`), []byte(`"mm_processor_kwargs":{"a":1},"priority":3,"model"`), 1)
				works(t, f.post(t, "parent", body))

				var got []int
				sent := map[string]string{} // image -> transfer id
				for _, e := range f.e {
					for _, c := range e.calls() {
						ps := c.chat.parts(t)
						got = append(got, len(ps))
						if len(c.chat.Params.Items) != len(ps) || c.chat.Params.Consumer != "tcp://d:1" ||
							!strings.Contains(c.body, `"mm_processor_kwargs":{"a":1},"priority":3,"ec_transfer_params"`) {
							t.Errorf("an Encoder got %s", c.body)
						}
						for i, p := range ps {
							sent[string(p.Image)] = c.chat.Params.Items[i].Transfer
							if (p.UUID != "") != rewrite {
								t.Errorf("uuid %q with rewrite %v", p.UUID, rewrite)
							}
						}
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, sizes) {
					t.Errorf("calls of %v media, want %v", got, sizes)
				}
				d := f.d[0].calls()[0].chat
				distinct := map[string]bool{}
				for i, it := range d.Params.Items {
					url := fmt.Sprintf(`{"url":"data:image/png;base64,AAA%d"}`, i)
					if it.Hash != "engine-"+url || it.Transfer != sent[url] {
						t.Errorf("item %d is %+v, sent as %s", i, it, sent[url])
					}
					distinct[it.Transfer] = true
				}
				if len(distinct) != 6 {
					t.Errorf("%d distinct transfers, want 6", len(distinct))
				}
				for i, p := range d.parts(t) {
					if want := fmt.Sprintf(`{"image_grid_thw":[1,%d,16]}`, i%2); rewrite && string(p.Embeds) != want {
						t.Errorf("part %d has %s, want %s", i, p.Embeds, want)
					}
				}
			})
		}
	}
}

func TestBatchRejectsAmbiguousMetadata(t *testing.T) {
	grid := `"metadata":{"image_grid_thw":[1,2,2]}`
	for params, words := range map[string]string{
		`"a":{"item_indices":[0],` + grid + `},"b":{"item_indices":[0],` + grid + `}`:   "Duplicate encoder item index",
		`"a":{"item_indices":[0],` + grid + `},"b":{"item_indices":[2],` + grid + `}`:   "Invalid encoder item index",
		`"a":{"item_indices":[0],` + grid + `},"b":{"item_indices":[-1],` + grid + `}`:  "Invalid encoder item index",
		`"a":{"item_indices":[0],` + grid + `},"b":{"item_indices":[1.0],` + grid + `}`: "Invalid encoder item index",
		`"a":{"item_indices":[0],` + grid + `},"b":{"item_indices":["1"],` + grid + `}`: "Invalid encoder item index",
		`"a":{` + grid + `},"b":{` + grid + `}`:                                         "Encoder metadata cannot be matched",
		`"a":{"item_indices":[0],` + grid + `}`:                                         "Encoder metadata cannot be matched",
	} {
		f := newStatic(t, 1, false, says(200, completion), nil)
		f.e[0].answer = says(200, `{"ec_transfer_params":{`+params+`}}`)
		fails(t, f.post(t, "", chat(image("AAAA"), image("BBBB"))), 502, words)
		if n := len(f.d[0].calls()); n > 0 {
			t.Errorf("%s: decode was asked", params)
		}
	}
}

func TestADecodeRetryDoesNotInheritThePreviousHandles(t *testing.T) {
	f := newStatic(t, 1, true, inTurn(says(500, `{"error":{"message":"lost","type":"InternalServerError"}}`), says(200, completion)), nil)
	f.e[0].answer = func(n int, r received, w http.ResponseWriter) {
		u := r.chat.parts(t)[0].UUID
		fmt.Fprintf(w, `{"ec_transfer_params":{%q:{"item_indices":[0],"metadata":{"image_grid_thw":[1,2,2]},"attempt-%d":true}}}`, u, n)
	}
	works(t, f.post(t, "", chat(image("AAAA"))))
	d := f.d[0].calls()
	if len(d) != 2 || len(f.e[0].calls()) != 2 || len(f.p[0].calls()) != 2 {
		t.Fatalf("%d encodes, %d prefills, %d decodes; want 2 each", len(f.e[0].calls()), len(f.p[0].calls()), len(d))
	}
	if d[0].chat.Params.Items[0].Transfer == d[1].chat.Params.Items[0].Transfer {
		t.Error("the second attempt has the first one's transfer id")
	}
	for i, want := range []string{`{"remote":1}`, `{"remote":2}`} {
		if got := string(d[i].chat.KV); got != want {
			t.Errorf("attempt %d has %s, want %s", i, got, want)
		}
		if !strings.Contains(d[i].body, fmt.Sprintf("attempt-%d", i)) || strings.Contains(d[i].body, fmt.Sprintf("attempt-%d", 1-i)) {
			t.Errorf("attempt %d has the handles %s", i, d[i].body)
		}
	}
	for i, p := range f.p[0].calls() {
		if !bytes.Equal(p.chat.KV, noTransfer) {
			t.Errorf("prefill of attempt %d is told %s", i, p.chat.KV)
		}
	}
}

func TestRawMediaKeepsEncoderTransferIdentity(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), nil)
	f.reg.find(f.d[0].URL).Addresses = []string{"tcp://d:1"}
	f.e[0].answer = func(_ int, r received, w http.ResponseWriter) {
		fmt.Fprintf(w, `{"ec_transfer_params":{"%s-processed":{"item_indices":[0]}}}`, r.chat.parts(t)[0].UUID)
	}
	audio := `{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,AAAA"}}`
	works(t, f.post(t, "", chat(audio)))
	sent := f.e[0].calls()[0].chat
	got := f.d[0].calls()[0].chat
	uuid := nameOf([]byte("data:audio/wav;base64,AAAA"))
	if p := got.parts(t)[0]; p.Type != "audio_url" || p.UUID != uuid || string(p.AudioURL) != `{"url":"data:audio/wav;base64,AAAA"}` {
		t.Errorf("the medium became %+v", p)
	}
	if it := got.Params.Items; len(it) != 1 || it[0].Hash != uuid+"-processed" || it[0].Transfer != sent.Params.Items[0].Transfer {
		t.Errorf("items %+v, sent as %+v", it, sent.Params.Items)
	}
}

// Bytes that fall apart between writes, and an event that is no JSON of ours.
var streamed = []string{"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xf0\x9f", "\x96\xbc\xed\x95", "\x9c\"},\"finish_reason\":null}]}\n",
	"\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DO", "NE]\n\n"}

func TestHTTPRoundtripPreservesPayloadAndResponseBytes(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("stream %v prefill %v", stream, split), func(t *testing.T) {
				want := completion + "\n"
				good := says(200, want)
				if stream {
					want = strings.Join(streamed, "")
					good = func(_ int, _ received, w http.ResponseWriter) {
						w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
						for _, s := range streamed {
							_, _ = io.WriteString(w, s)
							w.(http.Flusher).Flush()
						}
					}
				}
				f := newStatic(t, 1, split, inTurn(says(500, `{"error":{"message":"lost","type":"x"}}`), good), nil)
				odd := `"note":"한국\u00e9 \/ 🖼", "n":1.50, "stream":` + fmt.Sprint(stream)
				body := bytes.Replace(chat(text, image("AAAA")), []byte(`"model"`), []byte(odd+` , "model"`), 1)
				got := f.post(t, "parent", body)
				if got.status != 200 || string(got.body) != want {
					t.Errorf("got %d %q, want %q", got.status, got.body, want)
				}
				d, e := f.d[0].calls(), f.e[0].calls()
				if len(d) != 2 || len(e) != 2 {
					t.Fatalf("%d encodes, %d decodes, want 2 and 2", len(e), len(d))
				}
				if !strings.HasPrefix(d[1].body, `{`+odd+` , "model":"m","messages":[{"role":"user","content":[`+text+`,{"type":"image_embeds"`) {
					t.Errorf("decode got %s", d[1].body)
				}
				if id := nameOf([]byte("data:image/png;base64,AAAA")); d[1].chat.parts(t)[1].UUID != id || e[1].chat.parts(t)[0].UUID != id {
					t.Error("the content's name is another")
				}
				if d[1].header.Get("X-Request-Id") != "parent" || !strings.HasPrefix(e[1].header.Get("X-Request-Id"), "parent:0:") {
					t.Errorf("names %q and %q", d[1].header.Get("X-Request-Id"), e[1].header.Get("X-Request-Id"))
				}
			})
		}
	}
}

func TestPooledConnectionsAreRetiredBeforeTheServerClosesThem(t *testing.T) {
	for _, keepAlive := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 2 * time.Second, 30 * time.Second} {
		if idle := idleFor(keepAlive); idle <= 0 || idle >= keepAlive {
			t.Errorf("keep-alive %v: idle connections are kept for %v", keepAlive, idle)
		}
	}
	if idle := idleFor(0); idle >= 0 {
		t.Errorf("the servers keep no connections, ours are kept for %v", idle)
	}
}

// TestEqualImagesShareAnEntry: what an Encoder is told and what the consumer is told agree, for the same picture twice
// as well.
func TestEqualImagesShareAnEntry(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), nil)
	f.reg.find(f.d[0].URL).Addresses = []string{"tcp://d:1"}
	works(t, f.post(t, "", chat(image("AAAA"), image("AAAA"))))
	sent, got := f.e[0].calls()[0].chat, f.d[0].calls()[0].chat
	if len(sent.Params.Items) != 2 || len(got.Params.Items) != 2 {
		t.Fatalf("sent %+v, told %+v", sent.Params, got.Params)
	}
	for i := range 2 {
		if sent.Params.Items[i].Transfer != got.Params.Items[i].Transfer || got.Params.Items[i].Hash != got.parts(t)[i].UUID {
			t.Errorf("item %d: sent %+v, told %+v", i, sent.Params.Items[i], got.Params.Items[i])
		}
	}
	var params map[string]json.RawMessage
	var body struct {
		Params json.RawMessage `json:"ec_transfer_params"`
	}
	if err := json.Unmarshal([]byte(f.d[0].calls()[0].body), &body); err != nil || json.Unmarshal(body.Params, &params) != nil || len(params) != 2 {
		t.Errorf("handed over: %s (%v)", body.Params, err)
	}
}
