// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Calls that end in time end well beside Close, which takes the arena away after the last one.
func TestCloseWaitsForCalls(t *testing.T) {
	f := startFake(t)
	c, err := Open(t.Context(), Config{Addr: f.addr, Logger: quiet}, newArena(t, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	unmapped := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.unmaps
	}
	f.set(func(uint32, []string, [][]byte) []int64 {
		close(entered)
		<-release
		if n := unmapped(); n != 0 || c.Err() != nil {
			t.Errorf("under a call %d mappings were withdrawn, and calls are told to end: %v", n, c.Err())
		}
		return []int64{1}
	})
	read, closed := make(chan store.Got), make(chan error)
	go func() { read <- c.Get(context.Background(), []store.Want{{Key: "k", Bytes: 10}})[0] }()
	<-entered
	go func() { closed <- c.Close() }()
	eventually(t, "Close begins", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.closed
	})
	if _, err := exists(t, c, "k"); !errors.Is(err, errClosed) {
		t.Errorf("a question beside Close: %v", err)
	}
	close(release)
	if g := <-read; g.Err != nil {
		t.Errorf("a call that ended in time: %v", g.Err)
	} else {
		g.Buf.Release()
	}
	if err := <-closed; err != nil || unmapped() != 1 {
		t.Errorf("Close: %v, %d mappings withdrawn, want the only one", err, unmapped())
	}
}

// Close ends the calls that do not end by themselves, and gets their memory back.
func TestCloseEndsCalls(t *testing.T) {
	f := startFake(t)
	a := newArena(t, 1<<20)
	c, err := Open(t.Context(), Config{Addr: f.addr, Logger: quiet, CloseTimeout: time.Second}, a)
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}, 2), make(chan struct{})
	defer close(release)
	f.mu.Lock()
	f.exist = func(keys []string) []int64 {
		entered <- struct{}{}
		<-release
		return []int64{0}
	}
	f.mu.Unlock()
	f.set(func(uint32, []string, [][]byte) []int64 {
		entered <- struct{}{}
		<-release
		return []int64{1}
	})
	failed := make(chan error, 2)
	go func() {
		_, err := c.Exists(context.Background(), []embedding.Key{"k"})
		failed <- err
	}()
	go func() {
		failed <- c.Get(context.Background(), []store.Want{{Key: "k", Bytes: 10}})[0].Err
	}()
	<-entered
	<-entered
	start := time.Now()
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	eventually(t, "Close begins", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.closed
	})
	sent := f.count(fnGet)
	if g := c.Get(context.Background(), []store.Want{{Key: "late", Bytes: 10}})[0]; !errors.Is(g.Err, errClosed) || f.count(fnGet) != sent {
		t.Errorf("a Get beside Close: %v, %d calls were sent, want none", g.Err, f.count(fnGet)-sent)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("Close took %v", d)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnconfirmed) {
			t.Errorf("a call that Close ended: %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
