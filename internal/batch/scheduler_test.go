// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newModel returns a modelled engine that takes no time.
func newModel(t *testing.T, slots, context, cells int) *device.Text {
	t.Helper()
	m, err := device.NewText(device.TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: context, Slots: slots, Cells: cells})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newScheduler(t *testing.T, run engine.Runner, cfg Config) *Scheduler {
	t.Helper()
	s := New(run, cfg)
	t.Cleanup(s.Close)
	return s
}

// reader picks the likeliest of the modelled engine's tokens until it has n.
type reader struct {
	n    int
	toks []int32
}

func (r *reader) next(logits []float32) (int32, bool, error) {
	tok := int32(slices.Index(logits, slices.Max(logits)))
	r.toks = append(r.toks, tok)
	return tok, len(r.toks) < r.n, nil
}

func words(first int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = (first + int32(i)*7) % 250
	}
	return out
}

// picture returns an embedding of n rows, with a token before it and one behind.
func picture(v byte, n int) (embedding.Layout, []byte) {
	rows := make([]byte, n*8)
	for i := range n {
		binary.LittleEndian.PutUint32(rows[i*8:], uint32(v)<<8|uint32(i))
	}
	return embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{1}}, {Rows: n, Positions: n}, {Tokens: []int32{2}}}}, rows
}

// conversation is a random prompt; equal seeds give equal ones.
func conversation(seed int) []Part {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	var out []Part
	for range rng.IntN(4) {
		out = append(out, Part{Tokens: words(rng.Int32N(100), 1+rng.IntN(60))})
		v := byte(1 + rng.IntN(5))
		layout, rows := picture(v, 10*int(v))
		out = append(out, Part{Layout: layout, Data: rows, Name: fmt.Sprint("picture ", v)})
	}
	return append(out, Part{Tokens: words(rng.Int32N(100), 1+rng.IntN(90))})
}

// limit is how long a request of a test may take: its prompts and answers are computed in milliseconds.
const limit = 30 * time.Second

var errLimit = fmt.Errorf("the request has not ended in %v: the scheduler goes round in circles, or forgot it", limit)

// limited returns a context that ends a request which would never end.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errLimit)
	t.Cleanup(cancel)
	return ctx
}

// await waits for the end of a request, and fails the test if there is none.
func await(t *testing.T, h *Handle) {
	t.Helper()
	select {
	case <-h.Done():
	case <-limited(t).Done():
		t.Fatal(errLimit)
	}
}

func ask(t *testing.T, s *Scheduler, n int, parts ...Part) []int32 {
	t.Helper()
	r := &reader{n: n}
	if err := s.Ask(limited(t), parts, r.next); err != nil {
		t.Error(err)
	}
	return r.toks
}

// However many requests share the model, with whatever memory and budget, each gets the answer that it
// gets alone.
func TestSharingChangesNoAnswer(t *testing.T) {
	const n = 60
	want := make([][]int32, n)
	for i := range want {
		s := New(newModel(t, 1, 512, 0).Runner(), Config{StepTokens: 512})
		want[i] = ask(t, s, 3+i%20, conversation(i)...)
		s.Close()
	}
	for _, c := range []struct{ slots, cells, step int }{{1, 0, 2}, {3, 0, 16}, {8, 600, 100}, {4, 512, 7}, {8, 0, 512}} {
		s := newScheduler(t, newModel(t, c.slots, 512, c.cells).Runner(), Config{StepTokens: c.step})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if got := ask(t, s, 3+i%20, conversation(i)...); !slices.Equal(got, want[i]) {
					t.Errorf("%+v: request %d gets %v, alone %v", c, i, got, want[i])
				}
			})
		}
		wg.Wait()
		stats := s.Stats()
		if stats.Running+stats.Waiting+stats.UsedCells != 0 || stats.KeptCells > stats.Cells {
			t.Errorf("%+v: at the end %+v", c, stats)
		}
	}
}

// When answers grow past the memory, the later one gives up its place, and goes on where it was.
func TestMemoryRunsOut(t *testing.T) {
	parts := func(first int32) []Part { return []Part{{Tokens: words(first, 40)}} }
	alone := newScheduler(t, newModel(t, 1, 128, 0).Runner(), Config{})
	want := [][]int32{ask(t, alone, 80, parts(1)...), ask(t, alone, 80, parts(2)...)}
	s := newScheduler(t, newModel(t, 2, 128, 128).Runner(), Config{})
	first, second := &reader{n: 80}, &reader{n: 80}
	var later *Handle
	err := s.Ask(limited(t), parts(1), func(logits []float32) (tok int32, more bool, err error) {
		if later == nil { // while this one is at work
			later, err = s.Submit(Request{Prompt: []Segment{{Tokens: words(2, 40), Item: -1}}, Cells: 40, Next: second.next})
		}
		tok, more, _ = first.next(logits)
		return tok, more, err
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, later)
	if !slices.Equal(first.toks, want[0]) || !slices.Equal(second.toks, want[1]) || later.Err() != nil {
		t.Errorf("got %v and %v, %v; want %v", first.toks, second.toks, later.Err(), want)
	}
	if n := s.Stats().Preemptions; n != 1 {
		t.Errorf("%d preemptions, want 1", n)
	}
}

// K03: what differs in the picture alone shares the text before it and nothing else, however alike the
// names of the pictures are.
func TestReuseKeepsPicturesApart(t *testing.T) {
	s := newScheduler(t, newModel(t, 1, 512, 0).Runner(), Config{})
	prompt := func(v byte, name string) []Part {
		layout, rows := picture(v, 40)
		return []Part{{Tokens: words(5, 30)}, {Layout: layout, Data: rows, Name: name}, {Tokens: words(9, 20)}}
	}
	const red = "embedding@model:m@id:00000000000000000000000000000000000000000000000000000000beefcafe"
	const blue = "embedding@model:m@id:10000000000000000000000000000000000000000000000000000000beefcafe"
	first := ask(t, s, 8, prompt(1, red)...)
	cached := func() int64 { return s.Stats().CachedCells }
	before := cached()
	second := ask(t, s, 8, prompt(2, blue)...)
	if slices.Equal(first, second) {
		t.Error("another picture, the same answer")
	}
	if got := cached() - before; got != 31 { // the text, and the token that begins a picture
		t.Errorf("%d cells reused of another picture's prompt, want 31", got)
	}
	before = cached()
	if got := ask(t, s, 8, prompt(2, blue)...); !slices.Equal(got, second) {
		t.Errorf("the same again: %v, want %v", got, second)
	}
	if got := cached() - before; got != 92-2 { // all but two: the last is computed, and never alone
		t.Errorf("%d cells reused of 92", got)
	}
}

var errFault = errors.New("fault")

// A request that waits for its picture gives its place to one that can work, and gets one later.
func TestWaitingGivesWay(t *testing.T) {
	s := newScheduler(t, newModel(t, 1, 512, 0).Runner(), Config{})
	layout, rows := picture(3, 30)
	prompt := []Part{{Tokens: words(5, 60)}, {Layout: layout, Data: rows, Name: "p"}, {Tokens: words(4, 9)}}
	want := ask(t, newScheduler(t, newModel(t, 1, 512, 0).Runner(), Config{}), 6, prompt...)
	r := &reader{n: 6}
	h, err := s.Submit(Request{
		Prompt: []Segment{{Tokens: prompt[0].Tokens, Item: -1}, {Item: 0}, {Tokens: prompt[2].Tokens, Item: -1}},
		Names:  []string{"p"}, Cells: 101, Next: r.next,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		ask(t, s, 4, Part{Tokens: words(int32(i), 40)})
	}
	h.Deliver(0, layout, rows)
	h.Deliver(0, layout, nil) // once too often
	await(t, h)
	if h.Err() != nil || !slices.Equal(r.toks, want) {
		t.Errorf("got %v, %v; want %v", r.toks, h.Err(), want)
	}
}

func TestEndings(t *testing.T) {
	model := newModel(t, 1, 64, 0)
	s := newScheduler(t, model.Runner(), Config{MaxWaiting: 2})
	wait := func(names int) *Handle {
		t.Helper()
		h, err := s.Submit(Request{
			Prompt: []Segment{{Item: 0}, {Tokens: words(1, 5), Item: -1}}, Names: make([]string, names), Cells: 30, Next: (&reader{n: 1}).next,
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, r := range map[string]Request{
		"nothing":         {},
		"an image at end": {Prompt: []Segment{{Item: 0}}, Names: []string{"p"}, Cells: 3},
		"empty text":      {Prompt: []Segment{{Item: -1}}, Cells: 3},
	} {
		if _, err := s.Submit(r); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := s.Submit(Request{Prompt: []Segment{{Tokens: words(1, 64), Item: -1}}, Cells: 64}); !errors.Is(err, engine.ErrContextFull) {
		t.Errorf("a prompt as long as the context: %v", err)
	}
	lost, left, kept := errors.New("lost"), errors.New("left"), wait(1)
	kept.Fail(0, lost)
	await(t, kept)
	if kept.Err() != lost {
		t.Errorf("a lost picture: %v", kept.Err())
	}
	a, b := wait(1), wait(1)
	if _, err := s.Submit(Request{Prompt: []Segment{{Tokens: words(1, 5), Item: -1}}, Cells: 5}); !errors.Is(err, ErrFull) {
		t.Errorf("a third that waits: %v", err)
	}
	a.Cancel(left)
	a.Cancel(nil)
	await(t, a)
	if a.Err() != left {
		t.Errorf("cancelled: %v", a.Err())
	}
	err := s.Ask(limited(t), []Part{{Tokens: words(1, 5)}}, (&reader{n: 1000}).next)
	if !errors.Is(err, engine.ErrContextFull) {
		t.Errorf("an answer past the context: %v", err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	n := 0
	err = s.Ask(ctx, []Part{{Tokens: words(1, 5)}}, func([]float32) (int32, bool, error) {
		if n++; n == 3 {
			cancel()
		}
		return 1, n < 50, nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("left in the middle: %v", err)
	}
	s.Close()
	await(t, b)
	if !errors.Is(b.Err(), ErrClosed) {
		t.Errorf("at Close: %v", b.Err())
	}
	if _, err := s.Submit(Request{Prompt: []Segment{{Tokens: words(1, 5), Item: -1}}, Cells: 5}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// S08: prompts of one scope share their beginnings, those of two share nothing, whether the other has ended or
// is at work.
func TestScopesShareNothing(t *testing.T) {
	s := newScheduler(t, newModel(t, 4, 512, 0).Runner(), Config{})
	prompt := []Segment{{Tokens: words(5, 60), Item: -1}}
	submit := func(scope string, next func([]float32) (int32, bool, error)) int {
		t.Helper()
		h, err := s.Submit(Request{Prompt: prompt, Scope: scope, Cells: 60, Next: next})
		if err != nil {
			t.Fatal(err)
		}
		await(t, h)
		return h.Cached()
	}
	within := func(scope string) int {
		r := &reader{n: 3}
		return submit(scope, r.next)
	}
	if n := within("a"); n != 0 {
		t.Errorf("the first: %d cells reused", n)
	}
	for _, other := range []string{"b", "", "A", "a "} {
		if n := within(other); n != 0 {
			t.Errorf("scope %q: %d cells of another's reused", other, n)
		}
		if n := within(other); n < 50 {
			t.Errorf("scope %q again: %d cells reused", other, n)
		}
	}
	var beside *Handle
	r, second := &reader{n: 20}, &reader{n: 3}
	submit("at work", func(logits []float32) (int32, bool, error) {
		if beside == nil {
			var err error
			if beside, err = s.Submit(Request{Prompt: prompt, Scope: "beside", Cells: 60, Next: second.next}); err != nil {
				return 0, false, err
			}
		}
		return r.next(logits)
	})
	if await(t, beside); beside.Cached() != 0 || beside.Err() != nil {
		t.Errorf("beside one at work: %d cells reused, %v", beside.Cached(), beside.Err())
	}
}
