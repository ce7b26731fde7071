// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrivals says how requests come.
type Arrivals string

// The kinds of arrivals: memoryless, at equal distances, and in bursts of BurstSize at once, which
// come memorylessly.
const (
	Poisson Arrivals = "poisson"
	Uniform Arrivals = "uniform"
	Bursts  Arrivals = "bursts"
)

// BurstSize is how many requests a burst has.
const BurstSize = 8

// AllArrivals lists the kinds of arrivals.
func AllArrivals() []Arrivals { return []Arrivals{Poisson, Uniform, Bursts} }

// Synthetic describes a made-up trace.
type Synthetic struct {
	Requests   int
	Rate       float64 // requests per second
	Arrivals   Arrivals
	Images     Mix // per request
	Popularity Popularity
	// Repeat is the share of images that are one of the Recent last ones, whatever their popularity: how
	// close together repeats are. 0 leaves the gaps to popularity alone.
	Repeat float64
	Recent int
	Sizes  Sizes
	Seed   uint64
}

// DefaultSynthetic returns a trace like that of the published experiment, with popular images.
func DefaultSynthetic() Synthetic {
	return Synthetic{
		Requests: 10_000, Rate: 2, Arrivals: Poisson, Images: Mix{{1, 1}}, Recent: 64, Sizes: DefaultSizes(), Seed: 1,
		Popularity: Popularity{Kind: Zipf, S: 0.9, Distinct: 10_000},
	}
}

func (s *Synthetic) validate() error {
	switch {
	case s.Requests < 1 || s.Requests > 1<<28:
		return fmt.Errorf("sim: %d requests; give 1 to %d", s.Requests, 1<<28)
	case !(s.Rate > 0 && s.Rate <= 1e9):
		return fmt.Errorf("sim: a rate of %v requests per second; give more than 0, at most 1e9", s.Rate)
	case float64(s.Requests)/s.Rate > maxTime.Seconds():
		return fmt.Errorf("sim: %d requests at %v per second take more than %v", s.Requests, s.Rate, maxTime)
	case !(s.Repeat >= 0 && s.Repeat <= 1):
		return fmt.Errorf("sim: a share of repeats of %v; give 0 to 1", s.Repeat)
	case s.Repeat > 0 && s.Recent < 1:
		return fmt.Errorf("sim: repeats among the last %d images; give at least 1", s.Recent)
	case !slices.Contains(AllArrivals(), s.Arrivals):
		return fmt.Errorf("sim: unknown arrivals %q; there are %q", s.Arrivals, AllArrivals())
	case len(s.Images) == 0 || s.Images.Max() > 4096:
		return errors.New("sim: give 0 to 4096 images per request")
	}
	return nil
}

// Generate makes a trace up. Equal descriptions make equal traces.
func Generate(s Synthetic) (*Trace, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	draw, err := NewSampler(s.Popularity, s.Seed)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(s.Seed, 0x9e3779b97f4a7c15))
	b := newBuilder()
	number := map[uint32]uint32{} // of images, in the order in which they come
	seen := recent{room: s.Recent}
	at := 0.0
	for i := range s.Requests {
		if i > 0 {
			at += s.gap(r, i)
		}
		b.begin(time.Duration(at*float64(time.Second)), s.Sizes.TextTokens, s.Sizes.OutputTokens)
		for range s.Images.Pick(r) {
			var image uint32
			if len(seen.images) > 0 && s.Repeat > 0 && r.Float64() < s.Repeat {
				image = seen.images[r.IntN(len(seen.images))]
			} else {
				image = draw.Next()
			}
			seen.add(image)
			n, ok := number[image]
			if !ok {
				n = uint32(len(number))
				number[image] = n
			}
			if err := b.use(Use{Image: n, Bytes: int32(s.Sizes.ItemBytes)}); err != nil {
				return nil, fmt.Errorf("sim: %w", err)
			}
		}
	}
	return b.trace()
}

// recent holds the images that were used last, as often as they were.
type recent struct {
	images []uint32
	room   int
	oldest int // once there are as many as there is room for
}

// add takes an image in, in the place of the oldest where there is no room.
func (l *recent) add(image uint32) {
	switch {
	case len(l.images) < l.room:
		l.images = append(l.images, image)
	case l.room > 0:
		l.images[l.oldest] = image
		l.oldest = (l.oldest + 1) % l.room
	}
}

// gap returns the seconds before request i.
func (s *Synthetic) gap(r *rand.Rand, i int) float64 {
	switch s.Arrivals {
	case Uniform:
		return 1 / s.Rate
	case Bursts:
		if i%BurstSize != 0 {
			return 0
		}
		return r.ExpFloat64() * BurstSize / s.Rate
	}
	return r.ExpFloat64() / s.Rate
}
