// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"afterimage/internal/store/ram"
)

// small is a StoreBench of a moment, with a Store in this process.
func small(t *testing.T) StoreBench {
	return StoreBench{
		Rounds: Rounds{Rounds: 1, Warmup: 1, Samples: 2}, Sizes: []int{16 << 10, 256 << 10}, Counts: []int{1, 3},
		Seeding: Seeding{Images: 8, EncodeTime: time.Millisecond, Rows: 4, Runs: 1},
		serve: func(ctx context.Context, socket string, bytes int64) (func(), string, error) {
			srv, err := ram.NewServer(ram.Config{MaxBytes: bytes, Logger: quietLog})
			if err != nil {
				return nil, "", err
			}
			ln, err := ram.Listen(socket)
			if err != nil {
				return nil, "", err
			}
			done := make(chan error, 1)
			go func() { done <- srv.Serve(context.Background(), ln) }()
			reg := prometheus.NewRegistry()
			reg.MustRegister(srv.Collector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
			metrics := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
			return func() {
				metrics.Close()
				if err := srv.Close(); err != nil {
					t.Error(err)
				}
				<-done
			}, metrics.URL, nil
		},
	}
}

// values returns the rows' values by case and metric.
func values(t *testing.T, r Report) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, row := range r.Rows {
		if row.NotMeasured == "" && row.Peer == "" {
			out[row.Case+": "+row.Metric] = row.Value
		}
	}
	return out
}

func TestResolverBench(t *testing.T) {
	r, err := small(t).Resolver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := values(t, r)
	for _, name := range []string{"1x16KiB", "3x16KiB", "1x256KiB", "3x256KiB"} {
		for _, row := range []string{" full hit on loan: p50 us", " partial hit: p50 us", " checksum scan: p50 us", " copy into own arena: p50 us", " full miss: p50 us"} {
			if v, ok := got[name+row]; !ok || !(v > 0) {
				t.Errorf("%s%s is %v", name, row, v)
			}
		}
		if n := got[name+" full miss: Store calls"]; n > 1 {
			t.Errorf("%s: %v Store calls for a full miss, want at most 1", name, n)
		}
	}
	if n := got["whole run: evictions"] + got["whole run: rejected PUTs"]; n != 0 {
		t.Errorf("%v evictions and rejections", n)
	}
}

func TestPublishBench(t *testing.T) {
	b := small(t)
	b.Redis = true
	t.Setenv("PATH", t.TempDir()) // no peer
	r, err := b.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := values(t, r)["3x256KiB PUT: p50 us"]; !(v > 0) {
		t.Errorf("PUT took %v us", v)
	}
	missing := 0
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Case, "seeding 8 images of 40KiB") && !(row.Value > 0.008 && *row.PeerValue > 0.008) {
			t.Errorf("seeding took %v s and %v s, want 8 encodes of 1 ms at least", row.Value, *row.PeerValue)
		}
		if row.Peer == "redis" && strings.Contains(row.NotMeasured, "redis-server") {
			missing++
		}
	}
	if missing != 4 {
		t.Errorf("%d rows say that there is no redis, want 4", missing)
	}
}

func TestRoundsAlternate(t *testing.T) {
	var order []string
	note := func(name string) *way {
		return &way{name: name, run: func() error { order = append(order, name); return nil },
			check: func(all bool) error {
				order = append(order, map[bool]string{true: name + "!", false: name + "?"}[all])
				return nil
			}}
	}
	a, b := note("a"), note("b")
	if err := (Rounds{Rounds: 2, Warmup: 1, Samples: 2}).measure(t.Context(), a, b); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("a a! a a? a a! b b! b b? b b! a a! a a? a a! b b! b b? b b!")
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if len(a.us) != 4 || len(b.us) != 4 {
		t.Errorf("%d and %d samples, want 4 each: the first of a round does not count", len(a.us), len(b.us))
	}
	fault := errors.New("wrong bytes")
	a.check = func(bool) error { return fault }
	if err := (Rounds{Rounds: 1, Samples: 1}).measure(t.Context(), a); !errors.Is(err, fault) {
		t.Errorf("got %v, want %v", err, fault)
	}
}

// Over a slow link encoding wins; over a fast one nothing changes.
func TestRecomputeBench(t *testing.T) {
	b := small(t)
	b.Sizes, b.Counts, b.Rounds = []int{recomputeSize}, []int{1}, Rounds{Rounds: 1, Warmup: 1, Samples: 30}
	r, err := b.Resolver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range r.Rows {
		if row.Case == "slow link: read_or_recompute" && row.Metric == "p50 ms, modelled" {
			found++
			if *row.Ratio > 0.8 {
				t.Errorf("a slow link costs %v of what it did, want less than 0.8", *row.Ratio)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d rows of the slow link, want 1", found)
	}
}

// respServer answers as redis does.
func respServer(conn net.Conn) {
	defer conn.Close()
	in, data := bufio.NewReader(conn), map[string][]byte{}
	line := func() string { s, _ := in.ReadString('\n'); return strings.TrimSpace(s) }
	for {
		n, err := strconv.Atoi(strings.TrimPrefix(line(), "*"))
		if err != nil {
			return
		}
		args := make([][]byte, n)
		for i := range args {
			size, _ := strconv.Atoi(strings.TrimPrefix(line(), "$"))
			args[i] = make([]byte, size+2)
			io.ReadFull(in, args[i])
			args[i] = args[i][:size]
		}
		switch string(args[0]) {
		case "SET":
			data[string(args[1])] = args[2]
			fmt.Fprint(conn, "+OK\r\n")
		case "GET":
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(data[string(args[1])]), data[string(args[1])])
		case "EXISTS", "DEL":
			found := 0
			for _, k := range args[1:] {
				if _, ok := data[string(k)]; ok {
					found++
				}
				if string(args[0]) == "DEL" {
					delete(data, string(k))
				}
			}
			fmt.Fprintf(conn, ":%d\r\n", found)
		default:
			fmt.Fprint(conn, "-ERR unknown\r\n")
		}
	}
}

func TestRESP(t *testing.T) {
	ln, err := net.Listen("unix", t.TempDir()+"/r.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := ln.Accept(); err == nil {
			respServer(conn)
		}
	}()
	conn, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := &redis{conn: conn, in: bufio.NewReader(conn)}
	want := [][]byte{[]byte("one\r\n"), []byte(strings.Repeat("two", 5000))}
	for i, v := range want {
		if err := r.set(fmt.Sprint(i), v); err != nil {
			t.Fatal(err)
		}
	}
	got := [][]byte{make([]byte, len(want[0])), make([]byte, len(want[1]))}
	if err := r.resolve([]string{"0", "1"}, got); err != nil || string(got[0]) != string(want[0]) || string(got[1]) != string(want[1]) {
		t.Errorf("got %d and %d bytes, %v", len(got[0]), len(got[1]), err)
	}
	if err := r.del("0"); err != nil {
		t.Error(err)
	}
	if err := r.del("0"); err == nil {
		t.Error("a key was removed twice")
	}
	if err := r.resolve([]string{"0", "1"}, got); err == nil {
		t.Error("a key that is gone was read")
	}
	if err := r.get([]string{"1"}, [][]byte{make([]byte, 3)}); err == nil {
		t.Error("a value of another size was taken")
	}
	conn.Close()
	<-done
}
