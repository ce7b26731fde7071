// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// forgetful is a fleet whose P/D keeps nothing, so that it asks the Store each time.
func forgetful(o *options) { o.residents = 0 }

// road is where an answer's embeddings came from and by which road, e.g. "store by loan".
func road(a client.Answer) string {
	var out []string
	for _, it := range a.Items {
		out = append(out, fmt.Sprintf("%s by %s", it.Source, it.Road))
	}
	return strings.Join(out, ", ")
}

// TestHitNeedsNoEncoder: what the Store has, P/D takes from there itself, on loan, while no Encoder is told;
// with all Encoders gone it is still served, and a picture that is nowhere says what is missing.
func TestHitNeedsNoEncoder(t *testing.T) {
	f := newFleet(t, forgetful)
	file := picture(t, 90, 60, 1)
	want := reference(t, nil, turn{file, "what?"})
	if a := f.ask(t, "", file); road(a) != "encoded by tcp" || a.Text != want || a.Items[0].WaitMS < 0 {
		t.Errorf("first: %s, %q, want encoded by tcp, %q", road(a), a.Text, want)
	}
	f.published(t, 0)
	f.published(t, 1)
	calls := f.encoders[0].watch(control.PathEncode)
	other := f.encoders[1].watch(control.PathEncode)
	a := f.ask(t, "", file)
	if it := a.Items[0]; road(a) != "store by loan" && road(a) != "store by copy" || a.Text != want || it.Encoder != "" || it.Rows != 12 || it.Bytes == 0 {
		t.Errorf("second: %s, %q, %+v", road(a), a.Text, a.Items)
	}
	if n := calls.Load() + other.Load(); n != 0 {
		t.Errorf("%d encode calls for a hit", n)
	}
	for _, e := range f.encoders {
		e.die()
	}
	eventually(t, "the Encoders are seen to be gone", func() bool { return f.ready() != nil })
	if a := f.ask(t, "", file); a.Text != want {
		t.Errorf("without Encoders: %q, want %q", a.Text, want)
	}
	status, header, body := f.post(t, nil, user(img(picture(t, 90, 60, 2))))
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "no Encoder is ready") {
		t.Errorf("a picture that is nowhere: %d %s", status, body)
	}
	eventually(t, "the memory is back", f.free)
}

// TestRowsComeFromTheHead: a gateway that has never asked an Encoder for the size of a picture finds what the
// Store has of it; the object's own head says its rows, and the context bounds them.
func TestRowsComeFromTheHead(t *testing.T) {
	f := newFleet(t, forgetful)
	small, large := picture(t, 90, 60, 1), picture(t, 28*50, 28*50, 2) // 12 rows; 2500, beyond the context of 2048
	want := f.ask(t, "", small).Text
	f.published(t, 0)
	f.published(t, 1)
	f.plant(t, f.key(t, large), f.key(t, large), 2500)
	g := f.secondGateway(t, nil)
	for _, e := range f.encoders {
		e.failOn(control.PathWorker, answers(http.StatusOK, `{"role":"encoder","ready":false,"reason":"so"}`))
	}
	eventually(t, "no Encoder is ready", func() bool { return g.ready() != nil })
	if a := g.ask(t, "", small); a.Text != want || a.Items[0].Source != control.SourceStore || a.Items[0].Rows != 12 {
		t.Errorf("%q from %+v, want %q", a.Text, a.Items, want)
	}
	if status, _, body := g.post(t, nil, user(img(large))); status != 503 {
		t.Errorf("an object larger than the context: %d %s", status, body)
	}
	eventually(t, "the memory is back", f.free)
}

// TestResidentNeedsNoTransfer: an embedding that a request used is used again without a byte moving, within
// the bound on all that are kept; and twice in one prompt is one transfer.
func TestResidentNeedsNoTransfer(t *testing.T) {
	const object = 12*cols*4 + 128
	f := newFleet(t, func(o *options) { o.residents = 3 * object })
	moved := func() float64 { return f.prefill.count(t, "afterimage_transport_bytes_total", "receiver") }
	file := picture(t, 90, 60, 1)
	a := f.ask(t, "", file, file)
	if road(a) != "encoded by tcp, encoded by tcp" || f.prefill.count(t, "afterimage_prefill_items_total", "tcp") != 1 {
		t.Errorf("one picture twice: %s, %v transfers", road(a), f.prefill.count(t, "afterimage_prefill_items_total", "tcp"))
	}
	before := moved()
	if again := f.ask(t, "", file, file); road(again) != "resident by none, resident by none" || again.Text != a.Text {
		t.Errorf("again: %s, %q, want %q", road(again), again.Text, a.Text)
	}
	if got := moved() - before; got != 0 {
		t.Errorf("%v bytes moved for a resident", got)
	}
	for i := range 8 {
		f.ask(t, "", picture(t, 90, 60, uint8(10+i)))
		if st := f.residents.Stats(); st.Bytes > 3*object || st.Entries > 3 {
			t.Fatalf("%d residents with %d bytes, the bound is %d", st.Entries, st.Bytes, 3*object)
		}
	}
}

// TestLongPromptKeepsItsPicture (C09): a picture that stands at both ends of a long prompt is there for its
// second use, though others push it out of the residents in between.
func TestLongPromptKeepsItsPicture(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.residents, o.prefillTime, o.context = 12*cols*4+128, 200*time.Microsecond, 4096
	})
	file, long := picture(t, 90, 60, 1), strings.Repeat("and then ", 150)
	want := reference(t, func(o *options) { o.context = 4096 }, turn{file, long, file, "?"})
	done := make(chan string, 1)
	go func() {
		status, _, body := f.post(t, nil, messages(turn{file, long, file, "?"})...)
		done <- fmt.Sprint(status, " ", content(t, status, body))
	}()
	for i := range 6 {
		f.ask(t, "", picture(t, 90, 60, uint8(30+i)))
	}
	if got := <-done; got != "200 "+want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := f.encodes(t); n != 7 {
		t.Errorf("%v encodes of 7 pictures", n)
	}
}

// TestModesAgree sends the same 200 mixed requests through a fleet of each mode: all answers are equal.
func TestModesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	var files [][]byte
	for i := range 24 {
		files = append(files, picture(t, 28*(1+i%6), 28*(1+i%4), uint8(i)))
	}
	var all []turn
	for i := range 200 {
		var parts turn
		for range random.IntN(4) {
			parts = append(parts, files[random.IntN(len(files))])
			if random.IntN(2) == 0 {
				parts = append(parts, strings.Repeat("word ", random.IntN(40)))
			}
		}
		all = append(all, append(parts, fmt.Sprint("question ", i)))
	}
	through := func(change func(*options)) (answers []string, f *fleet) {
		f = newFleet(t, change)
		answers = make([]string, len(all))
		var wg sync.WaitGroup
		next := make(chan int)
		for range 8 {
			wg.Go(func() {
				for i := range next {
					status, _, body := f.post(t, nil, messages(all[i])...)
					answers[i] = content(t, status, body)
				}
			})
		}
		for i := range all {
			next <- i
		}
		close(next)
		wg.Wait()
		eventually(t, "the memory is back", f.free)
		return answers, f
	}
	// Residents that hold three pictures or so: all roads are used.
	direct, f := through(func(o *options) { o.residents = 4096 })
	p2p, _ := through(func(o *options) { o.p2p, o.residents = true, 0 })
	for i := range all {
		if direct[i] != p2p[i] {
			t.Errorf("request %d: direct %q, p2p %q", i, direct[i], p2p[i])
		}
	}
	for _, source := range []string{"store", "encoded", "resident"} {
		if f.gateway.count(t, "afterimage_gateway_items_total", source) == 0 {
			t.Errorf("no picture of the direct run came from %q", source)
		}
	}
}

// TestWrongLoanIsRepaired: values that no model can take are found before the model sees them; the object
// leaves the Store, the picture is encoded afresh, and the next request finds the right one.
func TestWrongLoanIsRepaired(t *testing.T) {
	f := newFleet(t, forgetful)
	file := wrongValuesAreRepaired(t, f)
	eventually(t, "the right object is in the Store", func() bool {
		return f.ask(t, "", file).Items[0].Source == control.SourceStore
	})
}

// TestWrongCopyIsRepaired: so are those that an Encoder took from the Store and sent by TCP.
func TestWrongCopyIsRepaired(t *testing.T) {
	f := newFleet(t, func(o *options) { forgetful(o); o.p2p = true })
	file := wrongValuesAreRepaired(t, f)
	f.published(t, 0)
	for _, name := range []string{"0", "1"} { // the other Encoder takes the right object from the Store
		if a := f.ask(t, name, file); a.Attempts != 1 {
			t.Errorf("Encoder %s, once it is repaired: %d attempts, %s", name, a.Attempts, road(a))
		}
	}
}

// wrongValuesAreRepaired has the Store hold a wrong object of a picture, and asks about that.
func wrongValuesAreRepaired(t *testing.T, f *fleet) (file []byte) {
	t.Helper()
	file = picture(t, 140, 140, 5) // 25 rows
	key := f.key(t, file)
	f.ask(t, "0", picture(t, 140, 140, 6)) // the size is known
	f.plantWith(t, key, key, 25, func(payload []byte) {
		binary.LittleEndian.PutUint32(payload[40:], math.Float32bits(float32(math.NaN())))
	})
	a := f.ask(t, "", file)
	if want := reference(t, nil, turn{file, "what?"}); a.Text != want || a.Attempts != 2 || a.Items[0].Source != control.SourceEncoded {
		t.Errorf("%d attempts, %s, %q, want %q", a.Attempts, road(a), a.Text, want)
	}
	return file
}

// TestWrongLayoutIsNotTaken: an object with the right rows and other tokens round them than the prompt has room for is
// as good as none.
func TestWrongLayoutIsNotTaken(t *testing.T) {
	f := newFleet(t, forgetful)
	file := picture(t, 140, 140, 5) // 25 rows
	key := f.key(t, file)
	f.ask(t, "0", picture(t, 140, 140, 6)) // the size is known
	f.plantLayout(t, key, key, embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{1, 2}}, {Rows: 25, Positions: 25}}}, func([]byte) {})
	if a, want := f.ask(t, "", file), reference(t, nil, turn{file, "what?"}); a.Text != want || a.Items[0].Source != control.SourceEncoded {
		t.Errorf("%d attempts, %s, %q, want %q", a.Attempts, road(a), a.Text, want)
	}
	eventually(t, "the memory is back", f.free)
}

// copying is a Store that lends nothing: what it gives is in the reader's memory. before is called ahead of
// each read, which it may fail.
type copying struct {
	store.Store
	into   *arena.Arena
	before func(context.Context, store.Want) error
	mute   bool // does not say what it has
}

func (c *copying) Capabilities() store.Capabilities {
	caps := c.Store.Capabilities()
	caps.Lends = false
	return caps
}

func (c *copying) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	if c.mute {
		<-ctx.Done()
		return nil, store.ErrUnavailable
	}
	return c.Store.Exists(ctx, keys)
}

func (c *copying) Get(ctx context.Context, wants []store.Want) []store.Got {
	gots := c.Store.Get(ctx, wants)
	for i := range gots {
		if gots[i].Err == nil {
			gots[i] = c.copyOf(ctx, wants[i], gots[i].Buf)
		}
	}
	return gots
}

func (c *copying) copyOf(ctx context.Context, w store.Want, loan *arena.Buf) store.Got {
	defer loan.Release()
	if c.before != nil {
		if err := c.before(ctx, w); err != nil {
			return store.Got{Err: err}
		}
	}
	own, err := c.into.Reserve(loan.Len())
	if err != nil {
		return store.Got{Err: fmt.Errorf("%w: %w", store.ErrRejected, err)}
	}
	copy(own.Bytes(), loan.Bytes())
	own.Commit()
	return store.Got{Buf: own}
}

// TestLoading: from a Store that copies, P/D reads in the background while it begins with the prompt; a read
// that fails or does not end is repaired by an encode.
func TestLoading(t *testing.T) {
	var c *copying
	f := newFleet(t, func(o *options) {
		o.residents, o.itemWait = 0, 300*time.Millisecond
		o.direct = func(s store.Store, a *arena.Arena) store.Store { c = &copying{Store: s, into: a}; return c }
	})
	file := picture(t, 90, 60, 1)
	want := f.ask(t, "", file).Text
	f.published(t, 0)
	f.published(t, 1)
	if a := f.ask(t, "", file, file); road(a) != "store by copy, store by copy" || f.encodes(t) != 1 {
		t.Errorf("%s, %v encodes", road(a), f.encodes(t))
	}
	for name, fault := range map[string]func(context.Context, store.Want) error{
		"it is gone":       func(context.Context, store.Want) error { return store.ErrMiss },
		"it is away":       func(context.Context, store.Want) error { return store.ErrUnavailable },
		"it does not come": func(ctx context.Context, _ store.Want) error { <-ctx.Done(); return store.ErrUnavailable },
	} {
		c.before = fault
		a := f.ask(t, "", file)
		if a.Text != want || a.Attempts != 2 || a.Items[0].Source != control.SourceEncoded {
			t.Errorf("%s: %d attempts, %s, %q, want %q", name, a.Attempts, road(a), a.Text, want)
		}
		c.before = nil
		eventually(t, name+": the memory is back", f.free)
	}
	c.mute = true
	start := time.Now()
	if a := f.ask(t, "", file); a.Text != want || a.Attempts != 1 || road(a) != "local by tcp" {
		t.Errorf("a Store that does not answer: %d attempts, %s, %q", a.Attempts, road(a), a.Text)
	}
	if took := time.Since(start); took > 4*time.Second { // half a second, and a busy machine; a grant is waited for 5 s
		t.Errorf("a Store that does not answer held the request up for %v", took)
	}
}

// TestCopyThatStays: what P/D copies for a request without knowing its size stays as a resident. It is told as
// the Store's, and as a resident of the next request.
func TestCopyThatStays(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.direct = func(s store.Store, a *arena.Arena) store.Store { return &copying{Store: s, into: a} }
	})
	file := picture(t, 90, 60, 1)
	f.warm(t, dataURL(file))
	g := f.secondGateway(t, nil)
	for _, e := range f.encoders {
		e.failOn(control.PathWorker, answers(http.StatusOK, `{"role":"encoder","ready":false,"reason":"so"}`))
	}
	eventually(t, "no Encoder is ready", func() bool { return g.ready() != nil })
	for _, want := range []string{"store by copy", "resident by none"} {
		if a := g.ask(t, "", file); road(a) != want || a.Text != reference(t, nil, turn{file, "what?"}) {
			t.Errorf("%s, %q, want %s", road(a), a.Text, want)
		}
	}
}
