// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"testing"
	"time"
)

// TestRunCounts takes a trace whose outcome can be told by hand.
func TestRunCounts(t *testing.T) {
	// Two requests of one image far apart, then the same image twice in one request.
	tr := read(t, Native, "time,request,image\n0,a,x\n10,b,x\n20,c,x\n20,c,y\n20,c,y\n")
	m := DefaultModel()
	m.Encoders = 1
	o, err := Run(t.Context(), tr, m, Policies(Unlimited)[0])
	if err != nil {
		t.Fatal(err)
	}
	if o.Encoded != 2 || o.Local != 2 || o.Joined != 1 || o.Items != 5 {
		t.Errorf("%+v, want 2 encoded, 2 local, 1 joined", o)
	}
	want := (m.Fixed + m.Encode + m.Hit + 656*m.Prefill).Seconds() // request a: 256 rows, 400 tokens
	if cold, err := Run(t.Context(), tr.Head(1), m, Policies(0)[0]); err != nil || math.Abs(cold.P50-want) > 1e-6 {
		t.Errorf("a cold request takes %v s, want %v (%v)", cold.P50, want, err)
	}
	m.CacheBytes = 0
	for _, c := range []struct {
		store   int64
		encoded int
	}{{0, 5}, {Unlimited, 2}, {256 * 10240, 2}} {
		o, err := Run(t.Context(), tr, m, Policies(c.store)[2])
		if err != nil || o.Encoded != c.encoded {
			t.Errorf("Store of %d bytes: %+v (%v), want %d encoded", c.store, o, err, c.encoded)
		}
	}
	m.ResidentBytes = Unlimited
	m.Prefills = 1
	if o, err := Run(t.Context(), tr, m, Policies(0)[0]); err != nil || o.Resident != 3 {
		t.Errorf("%+v (%v), want 3 resident", o, err)
	}
}

// TestRunQueues gives one Encoder and one P/D more than they can do at once.
func TestRunQueues(t *testing.T) {
	tr := read(t, Native, "time,request,image,text_tokens,output_tokens\n0,a,x,0,1\n0,b,y,0,1\n0,c,z,0,1\n")
	m := Model{Encoders: 1, Prefills: 1, Encode: 100 * time.Millisecond, Prefill: time.Millisecond, RowBytes: 10240}
	o, err := Run(t.Context(), tr, m, Policies(0)[0])
	if err != nil {
		t.Fatal(err)
	}
	// Encodes end at 100, 200, 300 ms; prefills of 256 ms follow at 100, 356, 612.
	if math.Abs(o.P50-0.612) > 1e-6 || math.Abs(o.P99-0.868) > 1e-6 || math.Abs(o.SpanP50-0.2) > 1e-6 {
		t.Errorf("p50 %v, p99 %v, span %v; want 0.612, 0.868, 0.2", o.P50, o.P99, o.SpanP50)
	}
}

func TestShelfEvicts(t *testing.T) {
	f := func(e Eviction, want uint32) {
		t.Helper()
		s := newShelf(30, e, 0)
		for i := range uint32(3) {
			s.put(i, 10, 0)
		}
		for _, used := range []uint32{0, 0, 1, 0} {
			s.get(used, 1, true)
		}
		s.put(3, 10, 2)
		if _, ok := s.get(want, 3, false); ok || s.evicted != 1 || s.bytes != 30 {
			t.Errorf("%s kept %d, which should have gone first; %d bytes", e, want, s.bytes)
		}
	}
	f(LRU, 2)
	f(FIFO, 0)
	f(LFU, 2)
	s := newShelf(100, LRU, 5*time.Second)
	s.put(1, 10, time.Second)
	if _, ok := s.get(1, 5*time.Second, true); !ok {
		t.Error("gone before its time")
	}
	if _, ok := s.get(1, 6*time.Second, true); ok || s.bytes != 0 {
		t.Error("there after its time")
	}
	s.put(2, 101, 0)
	if s.bytes != 0 {
		t.Error("shelved what is larger than the shelf")
	}
}

func TestSecondSighting(t *testing.T) {
	tr := read(t, Native, "time,request,image\n0,a,x\n10,b,y\n20,c,x\n30,d,x\n")
	m := DefaultModel()
	m.Encoders, m.CacheBytes = 1, 0
	p := Policies(Unlimited)[2]
	p.SecondSighting = true
	o, err := Run(t.Context(), tr, m, p)
	if err != nil || o.Encoded != 3 || o.Store != 1 || o.StoreInBytes != int64(DefaultSizes().ItemBytes) {
		t.Errorf("%+v (%v), want 3 encoded, 1 from the Store, 1 published", o, err)
	}
}

func TestPlan(t *testing.T) {
	s := DefaultSynthetic()
	s.Requests, s.Rate, s.Images = 3000, 20, Mix{{4, 1}}
	s.Popularity.Distinct = 500
	tr, err := Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	goal := Goal{Quantile: 90, TTFT: time.Second}
	without, err := Plan(t.Context(), tr, DefaultModel(), Policies(0)[0], goal)
	if err != nil {
		t.Fatal(err)
	}
	with, err := Plan(t.Context(), tr, DefaultModel(), Policies(Unlimited)[3], goal)
	if err != nil {
		t.Fatal(err)
	}
	// 80 images a second at 104.8 ms are 8.4 Encoders' work.
	if without.Encoders < 3 || with.Encoders >= without.Encoders || with.StoreBytes < 1 || with.StoreBytes > tr.DistinctBytes() {
		t.Errorf("without reuse %+v, with %+v", without, with)
	}
	if o := with.Outcome; o.P90 > 1 || o.EncoderUse >= 1 {
		t.Errorf("the plan misses its goal: %+v", o)
	}
	at := read(t, Native, "time,request,image\n0,a,x\n0,b,y\n")
	if one, err := Plan(t.Context(), at, DefaultModel(), Policies(0)[0], goal); err != nil || one.Encoders != 1 {
		t.Errorf("two requests at once: %+v, %v", one, err)
	}
	if _, err := Plan(t.Context(), tr, DefaultModel(), Policies(0)[0], Goal{Quantile: 90, TTFT: time.Millisecond}); err == nil {
		t.Error("a goal below the time of one request was met")
	}
}

// TestPlanFewestWorkers holds a plan against all fleets of one worker less. The fewest P/Ds of all would take
// many more Encoders here.
func TestPlanFewestWorkers(t *testing.T) {
	s := DefaultSynthetic()
	s.Requests, s.Rate, s.Images = 500, 5, Mix{{4, 1}}
	tr, err := Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	m, p := DefaultModel(), Policies(0)[0]
	m.CacheBytes = 0
	goal := Goal{Quantile: 90, TTFT: time.Second}
	plan, err := Plan(t.Context(), tr, m, p, goal)
	if err != nil {
		t.Fatal(err)
	}
	less := plan.Encoders + plan.Prefills - 1
	for m.Prefills = 1; m.Prefills < less; m.Prefills++ {
		m.Encoders = less - m.Prefills
		if o, err := Run(t.Context(), tr, m, p); err != nil || o.P90 <= goal.TTFT.Seconds() {
			t.Errorf("planned %d and %d, but %d Encoders and %d P/Ds have a p90 of %.3f s, %v", plan.Encoders, plan.Prefills, m.Encoders, m.Prefills, o.P90, err)
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	for name, change := range map[string]func(*Synthetic){
		"no requests": func(s *Synthetic) { s.Requests = 0 }, "no rate": func(s *Synthetic) { s.Rate = 0 },
		"rate NaN": func(s *Synthetic) { s.Rate = math.NaN() }, "endless": func(s *Synthetic) { s.Rate = 1e-9 },
		"repeats": func(s *Synthetic) { s.Repeat = 1.5 }, "arrivals": func(s *Synthetic) { s.Arrivals = "x" },
		"images": func(s *Synthetic) { s.Images = nil }, "distinct": func(s *Synthetic) { s.Popularity.Distinct = 0 },
	} {
		s := DefaultSynthetic()
		change(&s)
		if _, err := Generate(s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, bad := range []string{"", "zipf", "zipf:x:1", "zipf:1:0", "even:-1", "unique:1", "zipf:-1:5", "zipf:NaN:5"} {
		if _, err := ParsePopularity(bad); err == nil {
			t.Errorf("popularity %q: accepted", bad)
		}
	}
	for _, bad := range []string{"", "x", "-1", "1:-1", "1:0", "1:x"} {
		if _, err := ParseMix(bad); err == nil {
			t.Errorf("mix %q: accepted", bad)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	s := DefaultSynthetic()
	s.Requests, s.Rate = 1_000_000, 5
	tr, err := Generate(s)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Run(b.Context(), tr, DefaultModel(), Policies(1 << 30)[3]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOwners: images go to the Encoders that they are given to, and to none that there is not.
func TestOwners(t *testing.T) {
	b := newBuilder()
	for i := range uint32(8) {
		b.begin(time.Duration(i)*time.Second, 10, 2)
		if err := b.use(Use{Image: i, Bytes: 1024}); err != nil {
			t.Fatal(err)
		}
	}
	trace, err := b.trace()
	if err != nil {
		t.Fatal(err)
	}
	m := DefaultModel()
	p := Policy{Name: "all at one", Routing: Affinity, Eviction: LRU, Owners: make([]int, 8)}
	for i := range p.Owners {
		p.Owners[i] = 1
	}
	if o, err := Run(t.Context(), trace, m, p); err != nil || o.EncoderSpread != 2 {
		t.Errorf("spread %v, want 2 of 2: %v", o.EncoderSpread, err)
	}
	p.Owners[3] = 2
	if _, err := Run(t.Context(), trace, m, p); err == nil {
		t.Error("an Encoder that is not there takes an image")
	}
}

// TestAffinityHasOneHolder: with affinity no image is ever in two caches, so that a gateway which asks whoever holds it
// asks the same Encoder as by its name.
func TestAffinityHasOneHolder(t *testing.T) {
	tr, err := Generate(Synthetic{Requests: 400, Rate: 8, Images: Mix{{Value: 3, Weight: 1}}, Arrivals: Poisson,
		Popularity: Popularity{Kind: Zipf, S: 0.9, Distinct: 200}, Sizes: DefaultSizes(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := DefaultModel()
	m.Encoders, m.CacheBytes = 3, 64<<20
	for _, p := range Policies(1 << 30) {
		r := newRun(tr, m, p)
		for i := range tr.Requests {
			r.request(i)
		}
		most, apart := holders(r)
		if (p.Routing == Spread) != (most > 1) || (p.Routing == Spread) != (apart > 0) {
			t.Errorf("%s: up to %d hold an image, %d are not with the Encoder of their name", p.Name, most, apart)
		}
	}
}

// holders returns the most caches that one image is in, and how many are in one that is not by their name.
func holders(r *run) (most, apart int) {
	byName := run{m: r.m, p: Policy{Routing: Affinity}, enc: r.enc}
	for image := range uint32(r.t.Images) {
		n := 0
		for i := range r.enc {
			if _, ok := r.enc[i].cache.get(image, forever, false); ok {
				n++
				if byName.route(image) != i {
					apart++
				}
			}
		}
		most = max(most, n)
	}
	return most, apart
}
