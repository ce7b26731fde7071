// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/media"
)

// Name is the engine identity of every modelled device.
const Name = "modelled device"

// EncoderConfig sets what a modelled Encoder yields and how long it takes.
type EncoderConfig struct {
	Model      string
	Seed       uint64
	EncodeTime time.Duration // device time per picture
	HostTime   time.Duration // time per picture before the device begins, one picture at a time
	Rows       int           // rows per picture of any size; 0 derives them from the size
	Cols       int
	DType      embedding.DType
	ClockFile  string // the device, if it has other users; see NewClock
}

// DefaultEncoderConfig models the encoder of the published experiment: 104.8 ms per image (53.661 s for
// 512 images) and 2.5 MiB of bfloat16 per image.
func DefaultEncoderConfig() EncoderConfig { return DefaultProfile().Encoder() }

// maxRows bounds the rows that a picture's size can yield.
const maxRows = 4096

// pixelsPerRow is the side of the square that one row stands for when rows follow the size.
const pixelsPerRow = 28

// Encoder is a modelled engine.Encoder.
type Encoder struct {
	cfg   EncoderConfig
	clock *Clock
	host  sync.Mutex   // held for the host time of a picture: one at a time
	last  atomic.Int64 // when, on the clock, the last picture ends; 0 before the first
}

var _ engine.Encoder = (*Encoder)(nil)

// NewEncoder returns a device that nothing has been given to do.
func NewEncoder(cfg EncoderConfig) (*Encoder, error) {
	if cfg.Cols < 1 || cfg.DType.Bytes() == 0 || cfg.Rows < 0 || cfg.Rows > maxRows {
		return nil, fmt.Errorf("device: cannot model %d rows x %d of dtype code %d", cfg.Rows, cfg.Cols, uint32(cfg.DType))
	}
	clock, err := NewClock(cfg.ClockFile)
	if err != nil {
		return nil, err
	}
	return &Encoder{cfg: cfg, clock: clock}, nil
}

// Collector shows the device time of all pictures so far.
func (e *Encoder) Collector() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "afterimage_device_busy_seconds_total", Help: "Time that the modelled device of this Encoder worked.",
	}, func() float64 { return e.clock.Busy().Seconds() })
}

// Spec implements engine.Encoder.
func (e *Encoder) Spec() engine.EncoderSpec {
	rows := e.cfg.Rows
	if rows == 0 {
		rows = maxRows
	}
	return engine.EncoderSpec{
		Engine:      Name,
		Backend:     engine.Backend{Name: Name},
		Fingerprint: fmt.Sprintf("modelled-seed%d-%dx%d", e.cfg.Seed, e.cfg.Rows, e.cfg.Cols),
		Model:       e.cfg.Model, Cols: e.cfg.Cols, DType: e.cfg.DType, MaxRows: rows,
		Processing: embedding.Processing{Background: embedding.DefaultBackground}, Modelled: true,
	}
}

// Layout implements engine.Encoder.
func (e *Encoder) Layout(_ context.Context, width, height int) (embedding.Layout, error) {
	if width < 1 || height < 1 {
		return embedding.Layout{}, fmt.Errorf("device: picture of %dx%d", width, height)
	}
	rows := e.cfg.Rows
	if rows == 0 {
		side := func(n int) int { return min((n+pixelsPerRow-1)/pixelsPerRow, maxRows) }
		rows = min(side(width)*side(height), maxRows)
	}
	return embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}, nil
}

// Encode implements engine.Encoder: equal pictures yield equal bytes.
func (e *Encoder) Encode(ctx context.Context, px media.Pixels, dst []byte) error {
	l, err := e.Layout(ctx, px.Width, px.Height)
	if err != nil {
		return err
	}
	if want := l.Rows() * e.cfg.Cols * e.cfg.DType.Bytes(); len(dst) != want {
		return fmt.Errorf("device: %d bytes for an output of %d", len(dst), want)
	}
	end, err := e.begin(ctx)
	if err != nil {
		return err
	}
	// The bytes are made while the device is at work, so that making them takes no time of its own.
	fill(dst, e.cfg.DType, e.cfg.Seed^xxh3.Hash(px.RGB)^uint64(px.Width)<<32^uint64(px.Height))
	return e.clock.Await(ctx, end)
}

// lateShare is the share of a picture's time for which the next may be late. Whoever calls within it after the
// picture before has ended was waiting for that, and is taken to have called when it ended: how long a process
// takes to wake up is no time of the device.
const lateShare = 10

// begin spends the host time of a picture, gives it to the device, and returns when that will be done with it.
func (e *Encoder) begin(ctx context.Context) (end int64, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	e.host.Lock()
	defer e.host.Unlock()
	begin := e.clock.now()
	if last := e.last.Load(); last > 0 && begin > last && begin-last < int64(e.cfg.EncodeTime)/lateShare {
		begin = last
	}
	ready := begin + int64(e.cfg.HostTime)
	if err := e.clock.Await(ctx, ready); err != nil {
		return 0, err
	}
	if end, err = e.clock.give(ready, e.cfg.EncodeTime); err != nil {
		return 0, err
	}
	e.last.Store(end)
	return end, nil
}

// Close implements engine.Encoder.
func (e *Encoder) Close() error { return e.clock.Close() }

// fill writes seeded finite values in [-1, 1). It runs a 64-bit mixer (splitmix64) per 8 bytes, so that
// making the bytes costs little beside moving them.
func fill(dst []byte, d embedding.DType, seed uint64) {
	s := seed
	word := func() uint64 {
		s += 0x9e3779b97f4a7c15
		z := (s ^ s>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	put := func(b []byte, r uint32) int {
		f := float32(int32(r)) / (1 << 31)
		switch d {
		case embedding.Float32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(f))
			return 4
		case embedding.BFloat16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(f)>>16))
			return 2
		}
		// float16: sign, exponent 14 (values of 0.5 to 1), mantissa from r.
		binary.LittleEndian.PutUint16(b, uint16(r>>16)&0x8000|14<<10|uint16(r)&0x3ff)
		return 2
	}
	for i := 0; i < len(dst); {
		w := word()
		i += put(dst[i:], uint32(w))
		if i < len(dst) {
			i += put(dst[i:], uint32(w>>32))
		}
	}
}
