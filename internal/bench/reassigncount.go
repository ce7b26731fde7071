// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"
)

// counters are what the workers of a fleet have counted.
type counters struct {
	Encodes      float64   `json:"encodes"`
	BusySeconds  float64   `json:"encoder_seconds"` // device time
	StoreRead    float64   `json:"store_read_bytes"`
	Stored       float64   `json:"stored"`  // publications that the Store took
	Dropped      float64   `json:"dropped"` // publications that nobody took
	Pending      float64   `json:"pending"` // publications that wait
	StoreObjects float64   `json:"store_objects"`
	StoreBytes   float64   `json:"store_bytes"`
	PerEncoder   []float64 `json:"per_encoder"` // items that each Encoder answered
}

// count reads the metrics of all workers.
func (f *roles) count(ctx context.Context) (counters, error) {
	var c counters
	for _, url := range f.encoders {
		b, err := get(ctx, url+"/metrics")
		if err != nil {
			c.PerEncoder = append(c.PerEncoder, 0)
			continue // one that was killed counts nothing
		}
		c.Encodes += sumMetric(b, "afterimage_encoder_encodes_total")
		busy := sumMetric(b, "afterimage_device_busy_seconds_total")
		if busy == 0 { // no modelled device: what its engine took
			busy = sumMetric(b, "afterimage_encoder_encode_seconds_sum")
		}
		c.BusySeconds += busy
		c.StoreRead += sumMetric(b, "afterimage_resolve_store_bytes_total")
		stored := sumMetric(b, publishStored)
		c.Stored += stored
		c.Dropped += sumMetric(b, publishTotal+"{") - stored - sumMetric(b, publishExists)
		c.Pending += sumMetric(b, "afterimage_publish_pending_objects")
		c.PerEncoder = append(c.PerEncoder, sumMetric(b, "afterimage_encoder_items_total{"))
	}
	for _, url := range f.prefills {
		b, err := get(ctx, url+"/metrics")
		if err != nil {
			return c, err
		}
		c.StoreRead += sumMetric(b, "afterimage_resolve_store_bytes_total")
	}
	if f.store == "" {
		return c, nil
	}
	b, err := get(ctx, f.store+"/metrics")
	c.StoreObjects, c.StoreBytes = sumMetric(b, "afterimage_store_objects"), sumMetric(b, "afterimage_store_bytes")
	return c, err
}

// since returns what was counted after before; what is a state and no count stays as it is.
func (c counters) since(before counters) counters {
	c.Encodes -= before.Encodes
	c.BusySeconds -= before.BusySeconds
	c.StoreRead -= before.StoreRead
	c.Stored -= before.Stored
	c.Dropped -= before.Dropped
	per := make([]float64, len(c.PerEncoder))
	for i := range per {
		per[i] = c.PerEncoder[i] - before.PerEncoder[i]
	}
	c.PerEncoder = per
	return c
}

// drained waits until no publication is pending.
func (f *roles) drained(ctx context.Context) error {
	err := poll(ctx, "all publications have ended", func() (bool, error) {
		c, err := f.count(ctx)
		return c.Pending == 0, err
	})
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, errors.New("bench: publications are still pending at the end"))
	}
	return err
}

// watchEvery is how often the traffic of the Store is looked at.
const watchEvery = 2 * time.Second

// watch looks at the Store's traffic until the returned function is called, which returns what it saw.
func (f *roles) watch(ctx context.Context, scale float64) func() [][3]float64 {
	if f.store == "" {
		return func() [][3]float64 { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan [][3]float64)
	begun := time.Now()
	go func() {
		var seen [][3]float64
		var base float64
		for {
			if c, err := f.count(ctx); err == nil {
				if seen == nil {
					base = c.StoreRead
				}
				seen = append(seen, [3]float64{time.Since(begun).Seconds() * scale, c.StoreRead - base, c.StoreBytes})
			}
			if pause(ctx, watchEvery) != nil {
				done <- seen
				return
			}
		}
	}()
	return func() [][3]float64 {
		cancel()
		return <-done
	}
}
