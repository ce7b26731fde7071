// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
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
	if err := g.crowd(ctx, fresh.url, f.workers.Encoder); err != nil {
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

// crowd has requests with a picture in flight, until all of them wait at the Encoder, and then to their ends.
func (g Gateway) crowd(ctx context.Context, url, encoder string) error {
	if _, err := held(ctx, http.MethodPost, encoder, "?on=1"); err != nil {
		return err
	}
	var calls errgroup.Group
	calls.Go(func() error {
		return connected(ctx, url, g.InFlight, func(i int, c *wireClient) error {
			return c.post(newPictures(g.BodyBytes, 1000+i, 0).next()...)
		})
	})
	err := waiting(ctx, encoder, g.InFlight)
	if _, lifted := held(ctx, http.MethodPost, encoder, ""); err == nil {
		err = lifted
	}
	if failed := calls.Wait(); err == nil {
		err = failed
	}
	return err
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
	most, err := mostStreams()
	if err != nil {
		return nil, err
	}
	n := min(g.Streams, most)
	p.step("opening %d streams", n)
	fresh, err := f.launcher.front(ctx, f.workers)
	if err != nil {
		return nil, err
	}
	defer fresh.stop()
	if _, err := held(ctx, http.MethodPost, f.workers.Prefill, "?on=1"); err != nil {
		return nil, err
	}
	shut, err := openStreams(ctx, fresh.url, n)
	defer shut()
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

// mostStreams is how many streams a gateway that this process starts has descriptors for.
func mostStreams() (int, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return (int(min(limit.Max, 1<<30)) - spareFiles) / 2, err
}

// openStreams begins n streams. With an error, too, the caller shuts what is open.
func openStreams(ctx context.Context, url string, n int) (shut func(), err error) {
	open := make([]*wireClient, n) // nil where none is
	body := []byte(`{"model":"stub","stream":true,"messages":[{"role":"user","content":"What is this?"}]}`)
	var dials errgroup.Group
	dials.SetLimit(64)
	for i := range n {
		dials.Go(func() (err error) {
			if open[i], err = dialWire(ctx, url); err != nil {
				return err
			}
			if err := open[i].send(body); err != nil {
				return err
			}
			return firstEvent(open[i].in)
		})
	}
	return func() {
		for _, c := range open {
			if c != nil {
				c.conn.Close()
			}
		}
	}, dials.Wait()
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
