// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Routing says which Encoder an image goes to.
type Routing string

// The kinds of routing.
const (
	Spread   Routing = "spread"   // any, whatever the image: each use of each request in turn
	Affinity Routing = "affinity" // always the same for an image, by its hash
)

// Policy is a way to reuse.
type Policy struct {
	Name    string
	Routing Routing
	// Owners is the Encoder of each image, for Affinity; nil draws them, as a hash would.
	Owners []int
	// StoreBytes is the size of the shared Store: 0 is none, Unlimited has no end.
	StoreBytes int64
	// SecondSighting publishes an embedding only if its Encoder has seen the image before.
	SecondSighting bool
	TTL            time.Duration // of embeddings in the Store; 0 is for ever
	Eviction       Eviction      // of the Store; caches evict what was not used for longest
	// SingleFlight lets an image that another Encoder is encoding for the Store wait for that encode.
	SingleFlight bool
	// Direct lets P/Ds read hits from the Store; otherwise an Encoder takes and forwards them.
	Direct bool
}

// Model is a fleet and its times.
type Model struct {
	Encoders, Prefills int
	CacheBytes         int64 // of each Encoder's own cache
	ResidentBytes      int64 // of what each P/D keeps

	Encode   time.Duration // device time per image
	Host     time.Duration // host time per image, before the device begins
	Prefill  time.Duration // device time per prompt position
	Step     time.Duration // device time per decode step
	Hit      time.Duration // to take an embedding from a cache or the Store and deliver it
	Fixed    time.Duration // of every request: network, gateway, prompt
	Whole    bool          // a prompt is prefilled once all of it is there; see engine.device
	RowBytes int           // of one position of an embedding
	// StepTokens is the most positions that a P/D prefills between two decode steps; 0 is no bound.
	StepTokens int
	// Sequences bounds the requests that a P/D has in work; 0 is no bound.
	Sequences int
}

// DefaultModel returns the fleet of the published experiment: 2 Encoders and 4 P/Ds.
func DefaultModel() Model {
	return Model{
		Encoders: 2, Prefills: 4, CacheBytes: 256 << 20,
		Encode: 104800 * time.Microsecond, Prefill: 20 * time.Microsecond, Step: 19200 * time.Microsecond,
		Hit: 500 * time.Microsecond, Fixed: 5 * time.Millisecond, RowBytes: 10240, StepTokens: 128,
	}
}

// pieces returns in how many steps a prompt is prefilled while others decode.
func (m *Model) pieces(positions int) int {
	if m.Whole || m.StepTokens == 0 {
		return 1
	}
	return (positions + m.StepTokens - 1) / m.StepTokens
}

// Policies returns the four that are compared: no reuse beyond an Encoder's own cache, affinity alone,
// the Store alone, and both.
func Policies(storeBytes int64) []Policy {
	base := Policy{Routing: Spread, Eviction: LRU, SingleFlight: true}
	none, affinity, store, both := base, base, base, base
	none.Name, affinity.Name, store.Name, both.Name = "none", "affinity", "store", "both"
	affinity.Routing, both.Routing = Affinity, Affinity
	store.StoreBytes, both.StoreBytes = storeBytes, storeBytes
	none.SingleFlight = false
	return []Policy{none, affinity, store, both}
}

func (m *Model) validate(p Policy) error {
	switch {
	case m.Encoders < 1 || m.Encoders > 1<<12 || m.Prefills < 1 || m.Prefills > 1<<12:
		return fmt.Errorf("sim: %d Encoders and %d P/Ds; give 1 to %d of each", m.Encoders, m.Prefills, 1<<12)
	case m.RowBytes < 1:
		return fmt.Errorf("sim: rows of %d bytes", m.RowBytes)
	case m.CacheBytes < Unlimited || m.ResidentBytes < Unlimited || p.StoreBytes < Unlimited || min(m.Sequences, m.StepTokens) < 0:
		return errors.New("sim: a size is negative")
	case min(m.Encode, m.Host, m.Prefill, m.Step, m.Hit, m.Fixed, p.TTL) < 0:
		return errors.New("sim: a time is negative")
	case p.Routing != Spread && p.Routing != Affinity:
		return fmt.Errorf("sim: unknown routing %q; there are %q and %q", p.Routing, Spread, Affinity)
	case slices.ContainsFunc(p.Owners, func(e int) bool { return e < 0 || e >= m.Encoders }):
		return fmt.Errorf("sim: an image belongs to an Encoder that is none of %d", m.Encoders)
	case !slices.Contains(Evictions(), p.Eviction):
		return fmt.Errorf("sim: unknown eviction %q; there are %q", p.Eviction, Evictions())
	}
	return nil
}

// Outcome is what a trace did to a model.
type Outcome struct {
	Policy   string `json:"policy"`
	Requests int    `json:"requests"`
	Items    int    `json:"items"` // images, repeats included

	// Where the items came from; they add up to Items.
	Resident int `json:"resident"` // the P/D had it
	Local    int `json:"local"`    // the Encoder's own cache
	Store    int `json:"store"`
	Joined   int `json:"joined"` // shared an encode in flight
	Encoded  int `json:"encoded"`

	StorePeakBytes int64 `json:"store_peak_bytes"`
	StoreInBytes   int64 `json:"store_in_bytes"`
	StoreOutBytes  int64 `json:"store_out_bytes"`
	StoreEvicted   int64 `json:"store_evicted"`

	EncoderSeconds float64 `json:"encoder_seconds"` // device time of all Encoders
	EncoderUse     float64 `json:"encoder_use"`     // of the busiest Encoder; above 1 its queue grows without end
	EncoderSpread  float64 `json:"encoder_spread"`  // items of the busiest over the mean
	PrefillUse     float64 `json:"prefill_use"`     // of the busiest P/D

	// Time to first token, in seconds.
	P50 float64 `json:"ttft_p50_s"`
	P90 float64 `json:"ttft_p90_s"`
	P99 float64 `json:"ttft_p99_s"`
	// From the request to the last embedding's arrival, in seconds, over requests with images.
	SpanP50 float64 `json:"span_p50_s"`
	SpanP90 float64 `json:"span_p90_s"`
}

// HitRate returns the share of items that were not encoded.
func (o *Outcome) HitRate() float64 {
	if o.Items == 0 {
		return 0
	}
	return 1 - float64(o.Encoded)/float64(o.Items)
}
