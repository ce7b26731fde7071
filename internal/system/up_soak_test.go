// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/model"
)

// soak is a load of questions about pictures, while roles are killed.
type soak struct {
	u     *upRun
	files [][]byte
	want  []string // the right answer about each picture, from a calm fleet

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	right  int
	errs   map[string]int // clean errors, by kind
	wrong  []string
	tell   func() // says how far it is
}

// TestSoak asks from several clients at once while roles are killed at random: every answer is right
// or a clean error, and no role grows. AFTERIMAGE_SOAK=1 runs it at full length.
func TestSoak(t *testing.T) {
	answers, kills, calm := 60, 4, 100
	if soaking() {
		answers, kills, calm = 1000, 25, 1500
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{u: startUp(t, pair(t, model.MLP)...), random: rand.New(rand.NewPCG(seed, 0)), errs: map[string]int{}}
	for i := range 12 {
		s.files = append(s.files, noise(t, int64(100+i)))
		s.want = append(s.want, s.u.mustAsk(t, "", s.files[i]).Text)
	}

	s.run(t, answers, answers/kills)
	say(t, "%d right answers and %v through %d kills", s.right, s.errs, kills)
	eventually(t, "the fleet is whole again", func() bool { return len(s.u.roles()) == 5 })
	s.u.works(t)

	s.run(t, calm, 0)
	before := s.u.memory(t)
	errs := fmt.Sprint(s.errs)
	s.run(t, calm, 0)
	if got := fmt.Sprint(s.errs); got != errs {
		t.Errorf("errors of a calm fleet: %s, before %s", got, errs)
	}
	for name, after := range s.u.memory(t) {
		if grown := after - before[name]; grown > 16<<20 {
			t.Errorf("%s has grown by %d MiB over %d requests", name, grown>>20, calm)
		}
	}
	s.u.idle(t)
}

// run has four clients ask until there are n right answers more. Each time there are every more, a
// role is killed; never if every is 0.
func (s *soak) run(t *testing.T, n, every int) {
	t.Helper()
	goal := s.right + n
	s.tell = everyMinute(t, func() string { return fmt.Sprintf("%d of %d right answers and %v", s.right, goal, s.errs) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for s.ask(ctx, goal, every) {
				select {
				case <-pace.C: // a client that hammers a fleet in trouble sees nothing but its errors
				case <-ctx.Done():
					return
				}
			}
		})
	}
	clients.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d of %d right answers in 10 minutes; errors %v", s.right, goal, s.errs)
	}
	if len(s.wrong) > 0 {
		t.Fatalf("%d wrong answers: %s", len(s.wrong), s.wrong[0])
	}
}

// ask makes one request and says whether there is more to do.
func (s *soak) ask(ctx context.Context, goal, every int) bool {
	s.mu.Lock()
	i := s.random.IntN(len(s.files))
	s.mu.Unlock()
	one, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	a, err := s.u.ask(one, "", s.files[i])

	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell()
	kind := cleanError(err)
	switch {
	case err == nil && a.Text == s.want[i]:
		s.right++
		if every > 0 && s.right%every == 0 {
			s.killOne()
		}
	case err == nil:
		s.wrong = append(s.wrong, fmt.Sprintf("picture %d: %q, want %q (%+v)", i, a.Text, s.want[i], a))
	case kind == "":
		s.wrong = append(s.wrong, fmt.Sprintf("picture %d: not a clean error: %v", i, err))
	default:
		s.errs[kind]++
	}
	return s.right < goal && len(s.wrong) == 0
}

// killOne kills a role that runs, if there is one.
func (s *soak) killOne() {
	roles := s.u.roles()
	names := []string{"store", "encoder-0", "encoder-1", "prefill-0", "gateway"}
	if pid := roles[names[s.random.IntN(len(names))]]; pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// cleanError names the kind of an error that a client can deal with; "" for any other.
func cleanError(err error) string {
	refused, isAnswer := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return ""
	case isAnswer && (refused.Status == 503 || refused.Status == 404 && strings.Contains(refused.Message, "trace")):
		return strconv.Itoa(refused.Status)
	case strings.Contains(err.Error(), "the answer was cut off"):
		return "cut off"
	case strings.Contains(err.Error(), "no trace from"), strings.Contains(err.Error(), "no answer from"):
		return "no gateway"
	}
	return ""
}

// memory returns what each role holds in RAM, in bytes.
func (u *upRun) memory(t *testing.T) map[string]int64 {
	t.Helper()
	held := map[string]int64{}
	for name, pid := range u.roles() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		held[name] = pages * int64(os.Getpagesize())
	}
	return held
}

// idle waits until no part holds anything for a request.
func (u *upRun) idle(t *testing.T) {
	t.Helper()
	for _, role := range []string{"encoder-0", "encoder-1", "prefill-0"} {
		eventually(t, role+" holds no transfers", func() bool {
			return u.count(t, role, "afterimage_transport_in_flight", "") == 0
		})
	}
	eventually(t, "the gateway has no requests", func() bool {
		return u.count(t, "gateway", "afterimage_gateway_requests_running", "") == 0
	})
}
