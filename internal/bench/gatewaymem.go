// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// memory measures what requests with a picture take while they are in flight: all of them wait at the Encoder, and
// the highest resident size, less that from before they came, counts. The gateway is a fresh one.
func (g Gateway) memory(ctx context.Context, f *fleetUnderTest, p *progress) ([]Row, error) {
	p.step("holding %d requests at the Encoder", g.InFlight)
	fresh, err := f.launcher.front(ctx, f.workers)
	if err != nil {
		return nil, err
	}
	defer fresh.stop()
	pid := fresh.cmd.Process.Pid
	before, err := settled(ctx, pid)
	if err != nil {
		return nil, err
	}
	if err := resetPeak(pid); err != nil {
		return []Row{Missing("memory", "peak per request in flight", err.Error())}, nil
	}
	if _, err := held(ctx, http.MethodPost, f.workers.Encoder, "?on=1"); err != nil {
		return nil, err
	}
	var calls errgroup.Group
	for i := range g.InFlight {
		calls.Go(func() error {
			c, err := dialWire(ctx, fresh.url)
			if err != nil {
				return err
			}
			defer c.conn.Close()
			return c.post(newPictures(g.BodyBytes, 1000+i, 0).next()...)
		})
	}
	err = waiting(ctx, f.workers.Encoder, g.InFlight)
	if _, lifted := held(ctx, http.MethodPost, f.workers.Encoder, ""); err == nil {
		err = lifted
	}
	if failed := calls.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	peak, err := statusMiB(pid, "VmHWM")
	if err != nil {
		return nil, err
	}
	share := (peak - before) / float64(g.InFlight) / (float64(g.BodyBytes) / (1 << 20))
	return []Row{
		Absolute(fmt.Sprintf("memory, %d in flight", g.InFlight), "peak per request, x of its body", share, maxBodyShare),
		Absolute("memory", "resident before, MiB", before, 0),
	}, nil
}

// settled waits until a process has given back what it can, and returns its resident size.
func settled(ctx context.Context, pid int) (float64, error) {
	last, err := residentMiB(pid)
	for range 20 {
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
		var now float64
		if now, err = residentMiB(pid); err == nil && now > last-0.5 {
			return now, nil
		}
		last = now
	}
	return last, err
}

// waiting waits until n calls wait at a stub.
func waiting(ctx context.Context, worker string, n int) error {
	return poll(ctx, fmt.Sprintf("%d calls wait at %s", n, worker), func() (bool, error) {
		in, err := held(ctx, http.MethodGet, worker, "")
		return in >= n, err
	})
}

// spareFiles is how many descriptors a gateway needs besides two per stream.
const spareFiles = 200

// streams measures streams that have begun and stand still, on a fresh gateway.
func (g Gateway) streams(ctx context.Context, f *fleetUnderTest, p *progress) ([]Row, error) {
	n := g.Streams
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	if most := (int(min(limit.Max, 1<<30)) - spareFiles) / 2; n > most {
		n = most
	}
	p.step("opening %d streams", n)
	fresh, err := f.launcher.front(ctx, f.workers)
	if err != nil {
		return nil, err
	}
	defer fresh.stop()
	if _, err := held(ctx, http.MethodPost, f.workers.Prefill, "?on=1"); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var open []*wireClient
	defer func() {
		for _, c := range open {
			c.conn.Close()
		}
	}()
	var dials errgroup.Group
	dials.SetLimit(64)
	body := []byte(`{"model":"stub","stream":true,"messages":[{"role":"user","content":"What is this?"}]}`)
	for range n {
		dials.Go(func() error {
			c, err := dialWire(ctx, fresh.url)
			if err != nil {
				return err
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			if err := c.send(body); err != nil {
				return err
			}
			return firstEvent(c.in)
		})
	}
	err = dials.Wait()
	if err == nil {
		err = waiting(ctx, f.workers.Prefill, n)
	}
	var mib float64
	if err == nil {
		mib, err = residentMiB(fresh.cmd.Process.Pid)
	}
	if _, lifted := held(ctx, http.MethodPost, f.workers.Prefill, ""); err == nil {
		err = lifted
	}
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d idle streams", n)
	target := maxStreamsMiB * float64(n) / float64(g.Streams)
	return []Row{Absolute(name, "resident MiB", mib, target)}, nil
}

// firstEvent reads the head of an answer and the first event of its stream.
func firstEvent(in *bufio.Reader) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("bench: a stream answered %d", resp.StatusCode)
	}
	var one [1]byte
	_, err = io.ReadFull(resp.Body, one[:])
	return err
}
