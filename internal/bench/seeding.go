// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/engine/device"
	"afterimage/internal/media"
	"afterimage/internal/publish"
	"afterimage/internal/store"
)

// Seeding says how the cost of publication to the encoding of many images is measured.
type Seeding struct {
	Images     int
	EncodeTime time.Duration // of the modelled engine
	Rows       int           // of an image, 10 KiB each
	Runs       int           // with and without publication, in turns
}

// DefaultSeeding returns the figures that the target is stated for: 512 images of 640 KiB.
func DefaultSeeding() Seeding {
	return Seeding{Images: 512, EncodeTime: 10 * time.Millisecond, Rows: 64, Runs: 3}
}

// bytes is about what all images take.
func (s Seeding) bytes() int { return s.Images * s.Rows * seedCols * 2 }

// maxSeedingRatio is what publication may cost: 0.2 % of the wall clock.
const maxSeedingRatio = 1.002

// seed encodes images with and without publication, and compares the wall clock.
func (s Seeding) seed(ctx context.Context, r *storeRig) ([]Row, error) {
	var on, off []float64
	for range s.Runs {
		for _, shared := range []store.Store{nil, r.lend} {
			sec, err := s.run(ctx, r, shared)
			if err != nil {
				return nil, err
			}
			if shared == nil {
				off = append(off, sec)
			} else {
				on = append(on, sec)
			}
		}
	}
	name := fmt.Sprintf("seeding %d images of %s, modelled", s.Images, sizeName(s.Rows*seedCols*2))
	return []Row{Against(name, "wall s", Quantile(on, 0.5), "no publication", Quantile(off, 0.5), maxSeedingRatio)}, nil
}

// seedCols is the width of the published experiment's rows, in bfloat16.
const seedCols = 5120

// run returns the seconds until the last image is encoded, which is when its request is served.
func (s Seeding) run(ctx context.Context, r *storeRig, shared store.Store) (sec float64, err error) {
	eng, err := device.NewEncoder(device.EncoderConfig{
		Model: "modelled", Seed: 1, EncodeTime: s.EncodeTime, Rows: s.Rows, Cols: seedCols, DType: embedding.BFloat16})
	if err != nil {
		return 0, err
	}
	pub, err := publish.New(publish.Config{Store: shared, Protocol: embedding.A1, Logger: quietLog})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pub.Close(ctx)) }()
	keys := make([]embedding.Key, s.Images)
	for i := range keys {
		keys[i] = embedding.Key(fmt.Sprintf("bench@id:seed/%d", i))
	}
	start := time.Now()
	err = s.all(keys, func(i int) error {
		buf, m, err := s.encode(ctx, r.arena, eng, keys[i], i)
		if err != nil {
			return err
		}
		pub.Publish(keys[i], buf, m)
		buf.Release()
		return nil
	})
	sec = time.Since(start).Seconds()
	if err != nil || shared == nil {
		return sec, err
	}
	return sec, errors.Join(pub.Flush(ctx), s.tidy(ctx, shared, keys))
}

// all runs f for each image, for a few at once as requests do, so that the engine always has the next one
// waiting.
func (s Seeding) all(keys []embedding.Key, f func(i int) error) error {
	const requests = 4
	next := make(chan int)
	errs := make(chan error, requests)
	for range requests {
		go func() {
			var err error
			for i := range next {
				if err == nil {
					err = f(i)
				}
			}
			errs <- err
		}()
	}
	for i := range keys {
		next <- i
	}
	close(next)
	var err error
	for range requests {
		err = errors.Join(err, <-errs)
	}
	return err
}

// encode makes the object of image i.
func (s Seeding) encode(ctx context.Context, a *arena.Arena, eng *device.Encoder, key embedding.Key, i int) (*arena.Buf, embedding.Meta, error) {
	px := media.Pixels{Width: 1, Height: 1, RGB: binary.LittleEndian.AppendUint32(nil, uint32(i))[:3]}
	l, err := eng.Layout(ctx, px.Width, px.Height)
	if err != nil {
		return nil, embedding.Meta{}, err
	}
	m := embedding.Meta{Rows: s.Rows, Cols: seedCols, DType: embedding.BFloat16, Layout: l}
	buf, err := a.Reserve(embedding.A1.ObjectBytes(l, seedCols, m.DType))
	if err != nil {
		return nil, m, err
	}
	defer buf.Abort()
	if err := eng.Encode(ctx, px, buf.Bytes()[embedding.A1.PayloadOffset(l):]); err != nil {
		return nil, m, err
	}
	if err := embedding.A1.Seal(buf.Bytes(), key, m); err != nil {
		return nil, m, err
	}
	buf.Commit()
	return buf, m, nil
}

// tidy checks that every image was published, and takes them away.
func (s Seeding) tidy(ctx context.Context, shared store.Store, keys []embedding.Key) error {
	states, err := shared.Exists(ctx, keys)
	if err != nil {
		return err
	}
	for i, st := range states {
		if !st.Present {
			return fmt.Errorf("bench: image %d of %d was not published", i+1, len(keys))
		}
	}
	return shared.Remove(ctx, keys)
}
