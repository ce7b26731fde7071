// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// twoPrefills are two idle P/Ds.
func twoPrefills() *snapshot {
	s := &snapshot{}
	for _, name := range []string{"a", "b"} {
		s.Prefills = append(s.Prefills, worker{URL: name, Up: true, Known: true, Seen: control.Announcement{Name: name, Boot: "1"}})
	}
	return s
}

// talk returns a request whose conversation has these turns; a turn that begins with ! is a picture.
func talk(t *testing.T, salt string, turns ...string) *request {
	t.Helper()
	req := &request{}
	var body strings.Builder
	body.WriteString(`{"model":"m","messages":[`)
	for i, turn := range turns {
		if i > 0 {
			body.WriteByte(',')
		}
		part := fmt.Sprintf(`{"type":"text","text":%q}`, turn)
		if name, ok := strings.CutPrefix(turn, "!"); ok {
			part = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
			m := &image{digest: embedding.DigestOf([]byte(name)), parts: []int{len(req.images)}}
			req.uses = append(req.uses, len(req.images))
			req.images = append(req.images, m)
		}
		fmt.Fprintf(&body, `{"role":"user","content":[%s]}`, part)
	}
	body.WriteString(`]}`)
	var err error
	if req.scan, err = openai.Scan([]byte(body.String()), openai.ScanLimits{MaxImages: 9}); err != nil {
		t.Fatal(err)
	}
	req.salt = []byte(salt)
	req.blocks = blocks(req)
	return req
}

// TestConversationsStay: a conversation goes on where it began, also after a restart of nobody else; another
// picture, or another tenant's salt, makes it another conversation; one that was forgotten goes by load.
func TestConversationsStay(t *testing.T) {
	long := strings.Repeat("the quick brown fox ", 40)
	said := map[string]int{}
	c := newChooser(Affinity, func(by string) { said[by]++ })
	snap := twoPrefills()
	ask := func(req *request) string {
		t.Helper()
		pd, done, err := c.prefill(snap, req, fmt.Sprint(len(said)), newHistory())
		if err != nil {
			t.Fatal(err)
		}
		done()
		return pd.URL
	}
	home := ask(talk(t, "s", "!cat", long))
	other := map[string]string{"a": "b", "b": "a"}[home]
	for n := range 8 {
		if got := ask(talk(t, "s", "!cat", long, "go on", fmt.Sprint(n))); got != home {
			t.Errorf("turn %d goes to %s, the conversation is at %s", n, got, home)
		}
	}
	if said["prefix"] != 8 {
		t.Errorf("choices %v, want 8 by prefix", said)
	}
	for _, req := range []*request{talk(t, "s", "!dog", long), talk(t, "other", "!cat", long)} {
		if n := c.index.Match(home, req.blocks); n != 0 {
			t.Errorf("%d blocks of another conversation are held", n)
		}
	}
	at := map[string]int{"a": 0, "b": 1}
	snap.Prefills[at[home]].Seen.Running = 3
	if got := ask(talk(t, "s", "!cat", long)); got != other || said["overridden"] != 1 {
		t.Errorf("behind 3 others: %s, choices %v", got, said)
	}
	snap.Prefills[at[home]].Seen.Running = 0
	snap.Prefills[0].Seen.Boot, snap.Prefills[1].Seen.Boot = "2", "2"
	before := said["load"]
	if ask(talk(t, "s", "!cat", long)); said["load"] != before+1 {
		t.Errorf("after restarts: choices %v, want one more by load", said)
	}
}

// TestOwnCallsCount: requests that come at once are shared, though no probe has told of them yet.
func TestOwnCallsCount(t *testing.T) {
	c := newChooser(Affinity, func(string) {})
	snap, req := twoPrefills(), talk(t, "", strings.Repeat("hot ", 400))
	got := map[string]int{}
	var ends []func()
	for i := range 20 {
		pd, done, err := c.prefill(snap, req, fmt.Sprint(i), newHistory())
		if err != nil {
			t.Fatal(err)
		}
		got[pd.URL]++
		ends = append(ends, done)
	}
	if got["a"] < 8 || got["b"] < 8 {
		t.Errorf("20 at once are at %v", got)
	}
	for _, done := range ends {
		done()
	}
	if c.calls["a"] != 0 || c.calls["b"] != 0 {
		t.Errorf("%v are in work after the end", c.calls)
	}
}

// TestOtherRoutings: in turn, and at random, whatever was sent where.
func TestOtherRoutings(t *testing.T) {
	req := talk(t, "", strings.Repeat("hot ", 400))
	for how, most := range map[Routing]int{RoundRobin: 10, Random: 19} {
		c, got := newChooser(how, func(string) {}), map[string]int{}
		for i := range 20 {
			pd, done, err := c.prefill(twoPrefills(), req, fmt.Sprint(i), newHistory())
			if err != nil {
				t.Fatal(err)
			}
			done()
			got[pd.URL]++
		}
		if got["a"] > most || got["b"] > most {
			t.Errorf("%s: %v", how, got)
		}
	}
	snap := &snapshot{}
	for i := range 3 {
		snap.Encoders = append(snap.Encoders, worker{URL: fmt.Sprint(i), Up: true, Seen: control.Announcement{Name: fmt.Sprint(i)}})
	}
	c, got := newChooser(RoundRobin, nil), []int{}
	for range 4 {
		i, err := c.encoder(snap, &request{}, &image{id: "picture"}, false, newHistory())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, i)
	}
	if fmt.Sprint(got) != "[0 1 2 0]" {
		t.Errorf("Encoders in turn: %v", got)
	}
}

// TestBlocksAreOfTheConversation: what stands around the messages, and behind the last one, changes nothing.
func TestBlocksAreOfTheConversation(t *testing.T) {
	long := strings.Repeat("x", 4*route.BlockBytes)
	of := func(body string) []uint64 {
		t.Helper()
		scan, err := openai.Scan([]byte(body), openai.ScanLimits{})
		if err != nil {
			t.Fatal(err)
		}
		return blocks(&request{scan: scan})
	}
	a := of(`{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`)
	b := of(`{"temperature":0.5, "messages" : [{"role":"user","content":"` + long + `"}] , "model":"m"}`)
	c := of(`{"messages":[{"role":"user","content":"` + long + `"},{"role":"assistant","content":"y"}]}`)
	if len(a) != 4 || fmt.Sprint(a) != fmt.Sprint(b) || fmt.Sprint(a) != fmt.Sprint(c[:4]) {
		t.Errorf("blocks %x, %x, %x", a, b, c)
	}
}

// BenchmarkChoose is what affinity adds to a text request of 4 KiB before two P/Ds.
func BenchmarkChoose(b *testing.B) {
	body := append(append([]byte(`{"messages":[{"role":"user","content":"`), bytes.Repeat([]byte("x"), 4096)...), `"}]}`...)
	scan, err := openai.Scan(body, openai.ScanLimits{})
	if err != nil {
		b.Fatal(err)
	}
	c, snap, past := newChooser(Affinity, func(string) {}), twoPrefills(), newHistory()
	b.ReportAllocs()
	for b.Loop() {
		req := &request{scan: scan}
		req.blocks = blocks(req)
		_, done, err := c.prefill(snap, req, "k", past)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}
