// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"afterimage/internal/store/mooncake"
	"afterimage/internal/supervise"
)

const (
	// keepEvery is how often a worker looks whether the mooncake_client that another one keeps is there.
	keepEvery = time.Second
	// keepStartTimeout is how long a mooncake_client may take to start: it waits about 90 s for its master.
	keepStartTimeout = 2 * time.Minute
	// keepFirst is how long a worker waits for one before it serves without.
	keepFirst = 3 * time.Second
	// keepRetry and keepMaxRetry bound the pauses between starts that failed.
	keepRetry, keepMaxRetry = time.Second, 30 * time.Second
	// keepStop bounds its end, which takes it about 2 s.
	keepStop = 4 * time.Second
)

// mooncakeKeeper sees to it that a mooncake_client runs at one address of this host. Of all workers that
// keep one there, a single one has the process at a time: whoever holds the keep's name, which the kernel
// takes back when that worker is gone, and the process with it. Another worker starts the next one.
type mooncakeKeeper struct {
	dir, address string
	server       mooncake.Server
	p            *process

	cancel context.CancelFunc
	done   chan struct{}
	up     chan struct{} // closed once one was seen there
	seen   sync.Once
}

// keepName is the abstract socket by which workers of this network namespace agree on who keeps the
// mooncake_client at address; its own socket is told apart by the port alone, too.
func keepName(address string) string { return "@afterimage-mooncake-keep-" + port(address) }

// keptHere says whether a worker of this host keeps the mooncake_client at address.
func keptHere(address string) bool {
	c, err := net.DialTimeout("unixgram", keepName(address), answerTimeout)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// keepMooncake starts to keep a mooncake_client of the folder dir. close must follow.
func keepMooncake(dir, address string, server mooncake.Server, p *process) *mooncakeKeeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &mooncakeKeeper{dir: dir, address: address, server: server, p: p, cancel: cancel,
		done: make(chan struct{}), up: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.run(ctx)
	}()
	return k
}

// wait returns when a mooncake_client is there, ctx ends or it takes long.
func (k *mooncakeKeeper) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keepFirst)
	defer cancel()
	select {
	case <-k.up:
	case <-ctx.Done():
	}
}

// close stops what this worker started.
func (k *mooncakeKeeper) close() error {
	k.cancel()
	<-k.done
	return nil
}

func (k *mooncakeKeeper) run(ctx context.Context) {
	pause := keepRetry
	for ctx.Err() == nil {
		if takesCalls(k.address) {
			k.seen.Do(func() { close(k.up) })
		} else if lock, err := net.ListenPacket("unixgram", keepName(k.address)); err == nil {
			if err = k.start(ctx, lock); err != nil && ctx.Err() == nil {
				k.p.log.Warn("mooncake: mooncake_client does not start; encoding meanwhile", "addr", k.address, "again_in", pause, "cause", err)
				sleep(ctx, pause)
				pause = min(2*pause, keepMaxRetry)
			}
			continue
		}
		sleep(ctx, keepEvery)
	}
}

// start runs a mooncake_client until ctx ends, or returns why it does not come up, nil if another is there. lock
// is given up with it.
func (k *mooncakeKeeper) start(ctx context.Context, lock net.PacketConn) error {
	defer lock.Close()
	if takesCalls(k.address) {
		return nil // it was started between the look and the lock
	}
	s, err := supervise.New(supervise.Config{
		Binary: os.Args[0], RunDir: "/", Logs: os.Stderr, Log: k.p.log,
		StartTimeout: keepStartTimeout, StopTimeout: keepStop,
		Specs: []supervise.Spec{mooncakeSpec(clientName, clientProgram, k.dir, 0, k.address, k.server.Env(), k.server.Args()...)},
	})
	if err != nil {
		return err
	}
	k.p.log.Info("mooncake: starting a mooncake_client, which ends with this worker", "addr", k.address, "master", k.server.Master)
	err = s.Start(ctx)
	if err == nil {
		k.seen.Do(func() { close(k.up) })
		<-ctx.Done()
	}
	stopErr := s.Stop(context.Background())
	if err == nil {
		err = stopErr
	}
	return err
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
