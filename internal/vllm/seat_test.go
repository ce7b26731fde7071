// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/media"
	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// words are n blocks of text that no other seed has.
func words(seed string, n int) string {
	return (seed + strings.Repeat(" "+seed, n*route.BlockBytes))[:n*route.BlockBytes]
}

// turns is a conversation of so many turns, with an image in its first.
func turns(name string, n int) []byte {
	list := []string{fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":%q},%s]}`, words(name, 3), image(name))}
	for i := range n {
		list = append(list, fmt.Sprintf(`{"role":"assistant","content":%q}`, words(fmt.Sprint(name, i), 2)))
	}
	return []byte(`{"model":"m","messages":[` + strings.Join(list, ",") + `]}`)
}

// idle waits until no request is in work: a client has its answer a moment before.
func (f *front) idle(t *testing.T) {
	t.Helper()
	busy := func() (n int) {
		f.reg.mu.Lock()
		defer f.reg.mu.Unlock()
		for _, e := range f.reg.live {
			n += e.load()
		}
		return n
	}
	for deadline := time.Now().Add(20 * time.Second); busy() > 0; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests are in work", busy())
		}
	}
}

// A conversation goes on where its beginning was sent, whatever other requests come between, with prefill and decode
// together or apart; in turn, it goes round.
func TestConversationsStay(t *testing.T) {
	for _, c := range []struct {
		how   Routing
		apart bool
		want  int // workers that see a conversation
	}{{Affinity, false, 1}, {Affinity, true, 1}, {RoundRobin, false, 3}} {
		e, d := newStub(t, encodes("")), newStub(t, says(200, completion))
		f := newFront(t, func(cfg *Config) {
			cfg.Routing = c.how
			cfg.Static = []Instance{{Role: Encode, URL: e.URL, Replicas: 1}}
			if c.apart {
				cfg.Static = append(cfg.Static, Instance{Role: Decode, URL: d.URL, Replicas: 1})
			}
		})
		var pds []*stub
		role := map[bool]Role{false: PrefillDecode, true: Prefill}[c.apart]
		for range 3 {
			pds = append(pds, newStub(t, says(200, completion)))
			register(t, f.reg, role, pds[len(pds)-1].URL)
		}
		talks := []string{"left", "right", "middle", "other", "fifth"}
		for n := range 4 {
			for _, name := range talks {
				works(t, f.post(t, "", turns(name, n)))
				f.idle(t)
			}
		}
		for _, name := range talks {
			met := 0
			for _, pd := range pds {
				if slices.ContainsFunc(pd.calls(), func(r received) bool { return strings.Contains(r.body, words(name, 3)) }) {
					met++
				}
			}
			if met != c.want {
				t.Errorf("%s, apart %v: conversation %s met %d workers, want %d", c.how, c.apart, name, met, c.want)
			}
		}
	}
}

// However a request ends, it takes up no seat any more.
func TestSeatsAreGivenBack(t *testing.T) {
	r := newTestRegistry()
	register(t, r, PrefillDecode, "a", "b", "c")
	f := &Front{cfg: Config{Routing: Affinity, Failovers: 2}, reg: r, metrics: newMetrics(prometheus.NewRegistry(), media.NewBudget(1))}
	past := &history{}
	for n := range 3 {
		w, err := f.choose(&request{}, past)
		if err != nil {
			t.Fatal(err)
		}
		loads := func() (sum int) {
			for _, e := range r.all() {
				sum += e.load()
			}
			return sum
		}
		if again, _ := f.choose(&request{}, past); again != w || loads() != 1 {
			t.Errorf("attempt %d: a request has %d seats", n, loads())
		}
		if n == 2 {
			past.leave() // it is over
			past.leave()
		} else {
			past.again(&callError{stage: stageDecode, url: w.decode.URL}, f.cfg)
		}
		if loads() != 0 {
			t.Errorf("attempt %d: %d seats are taken when it has failed", n, loads())
		}
	}
}

// A beginning that all prompts share does not send them all to one worker, not even in a burst whose calls wait for
// Encoders.
func TestHotBeginningsAreShared(t *testing.T) {
	r := newTestRegistry()
	register(t, r, PrefillDecode, "a", "b")
	prompt := func(i int) []uint64 {
		p := route.NewPrompt(nil)
		p.Text([]byte(words("system", 20) + words(fmt.Sprint(i), 2)))
		return p.Blocks()
	}
	got, by := map[string]int{}, map[string]int{}
	for i := range 40 {
		s, why, _ := r.sit(PrefillDecode, Affinity, prompt(i), shunned{}, time.Now())
		got[s.e.URL]++
		by[why]++
	}
	if min(got["a"], got["b"]) < 12 || by["prefix"] == 0 || by["overridden"] == 0 {
		t.Errorf("40 at once went to %v, by %v", got, by)
	}
}

// A worker that is taken off the roster, or has been away, is thought to hold nothing.
func TestRestartedWorkersHoldNothing(t *testing.T) {
	r := newTestRegistry()
	register(t, r, PrefillDecode, "a", "b")
	p := route.NewPrompt(nil)
	p.Text([]byte(words("x", 9)))
	choose := func() (seat, string) {
		s, by, left := r.sit(PrefillDecode, Affinity, p.Blocks(), shunned{}, time.Now())
		left()
		return s, by
	}
	first, by := choose()
	if by != "load" {
		t.Errorf("the first by %s", by)
	}
	if s, by := choose(); s != first || by != "prefix" {
		t.Errorf("the second went to %s by %s", s.name(), by)
	}
	for range 3 {
		r.probed(first.e, false, time.Now())
	}
	r.probed(first.e, true, time.Now())
	if _, by := choose(); by != "load" {
		t.Errorf("after it was away: by %s", by)
	}
}

// beginnings are the blocks of words.
func beginnings(seed string, n int) []uint64 {
	p := route.NewPrompt(nil)
	p.Text([]byte(words(seed, n)))
	return p.Blocks()
}

// With data-parallel replicas, whose caches are apart, the conversation stays with its replica.
func TestConversationsStayWithTheirReplica(t *testing.T) {
	r := newTestRegistry()
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "a", Replicas: 4}); err != nil {
		t.Fatal(err)
	}
	sit := func(name string, n int) int {
		s, _, left := r.sit(PrefillDecode, Affinity, beginnings(name, 4+n), shunned{}, time.Now())
		left()
		return s.replica
	}
	at := map[string]int{}
	for n := range 3 {
		for _, name := range []string{"k", "l", "m"} {
			got := sit(name, n)
			if was, ok := at[name]; ok && was != got {
				t.Errorf("%s moves from replica %d to %d", name, was, got)
			}
			at[name] = got
		}
	}
	if len(at) != 3 || at["k"] == at["l"] || at["l"] == at["m"] {
		t.Errorf("replicas %v, want those in turn", at)
	}
	// With other replicas it is another process, which holds nothing; nothing is kept of those that are no more.
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "a", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	for replica := range 4 {
		if n := r.sent.Match(fmt.Sprint("a#", replica), beginnings("k", 4)); n != 0 {
			t.Errorf("replica %d is still thought to hold %d blocks", replica, n)
		}
	}
}

// Requests of different salts, models or pictures share no beginnings; those that go on do.
func TestPromptsAreTold(t *testing.T) {
	of := func(salt, body string) []uint64 {
		t.Helper()
		env, err := openai.ReadEnvelope(whole(body), 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		req := &request{path: pathChat, env: env, media: make([]medium, len(env.Media)), apart: []byte(salt)}
		return blocks(req)
	}
	shared := func(a, b []uint64) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	first := of("", string(turns("x", 1)))
	if n := shared(first, of("", string(turns("x", 2)))); n < len(first) {
		t.Errorf("a conversation that goes on shares %d of %d blocks", n, len(first))
	}
	picture := strings.Replace(string(turns("x", 1)), "base64,x", "base64,y", 1)
	if n := shared(first, of("", picture)); n == 0 || n > 4 {
		t.Errorf("with another picture %d of %d blocks are shared, want those before it", n, len(first))
	}
	for what, other := range map[string][]uint64{
		"salt": of("s", string(turns("x", 1))), "model": of("", strings.Replace(string(turns("x", 1)), `"m"`, `"n"`, 1)),
	} {
		if n := shared(first, other); n != 0 {
			t.Errorf("with another %s %d blocks are shared", what, n)
		}
	}
}

// A long prompt has few names, and those of one that goes on begin with them.
func TestLongPromptsAreThinned(t *testing.T) {
	all := make([]uint64, 512)
	for i := range all {
		all[i] = uint64(i)
	}
	last := 0
	for n := range all {
		got := thin(slices.Clone(all[:n]))
		if len(got) > 152 || len(got) < min(n, 32) || len(got) < last {
			t.Fatalf("%d blocks leave %d, %d fewer leave %d", n, len(got), 1, last)
		}
		if whole := thin(slices.Clone(all)); !slices.Equal(got, whole[:len(got)]) {
			t.Fatalf("%d blocks leave %v, no beginning of %v", n, got, whole)
		}
		last = len(got)
	}
	if last < 150 {
		t.Errorf("512 blocks leave %d", last)
	}
}

// BenchmarkSeat is all that affinity adds to a text request: names of its beginnings, and a look at what four workers
// were sent.
func BenchmarkSeat(b *testing.B) {
	for _, kib := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			r := newTestRegistry()
			for _, url := range []string{"a", "b", "c", "d"} {
				if _, err := r.Register(Instance{Role: PrefillDecode, URL: url, Replicas: 1}); err != nil {
					b.Fatal(err)
				}
			}
			var reqs []*request
			for i := range 64 {
				body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, words(fmt.Sprint("talk ", i), kib<<10/route.BlockBytes))
				env, err := openai.ReadEnvelope(whole(body), 0, nil)
				if err != nil {
					b.Fatal(err)
				}
				reqs = append(reqs, &request{path: pathChat, env: env})
			}
			i := 0
			for b.Loop() {
				req := reqs[i%len(reqs)]
				i++
				_, _, left := r.sit(PrefillDecode, Affinity, blocks(req), shunned{}, time.Now())
				left()
			}
		})
	}
}
