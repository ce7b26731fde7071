// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/testkit"
)

// byHand is a role that the test starts itself, at an address that it keeps.
type byHand struct {
	*testkit.Process
	url string
}

// startByHand runs a role with these arguments and waits until it is ready.
func startByHand(t *testing.T, name, role string, args ...string) *byHand {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	b := &byHand{url: "http://" + address}
	b.Process = testkit.StartProcess(t, name, func() *exec.Cmd {
		return command(t, append([]string{role, "--listen", address}, args...)...)
	})
	b.ready(t)
	return b
}

func (b *byHand) ready(t *testing.T) {
	t.Helper()
	eventually(t, b.url+" is ready", func() bool {
		resp, err := http.Get(b.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// boots returns the process of each worker that a gateway has in service, by name.
func (b *byHand) boots(t *testing.T) map[string]string {
	t.Helper()
	var fleet struct {
		Encoders, Prefills []struct {
			Up           bool
			Announcement control.Announcement
		}
	}
	resp, err := http.Get(b.url + "/v1/fleet")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&fleet); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, w := range append(fleet.Encoders, fleet.Prefills...) {
		if w.Up {
			out[w.Announcement.Name] = w.Announcement.Boot
		}
	}
	return out
}

// replaced has restart put a worker's process in the place of another, and waits until all gateways have it.
func replaced(t *testing.T, gateways []*byHand, name string, restart func()) {
	t.Helper()
	before := gateways[0].boots(t)[name]
	restart()
	for _, g := range gateways {
		eventually(t, g.url+" has all workers, and the new "+name, func() bool {
			now := g.boots(t)
			return len(now) == 4 && now[name] != before
		})
	}
}

// restart tells it to leave, waits for its end, and starts it again.
func (b *byHand) restart(t *testing.T) {
	t.Helper()
	b.Signal(syscall.SIGTERM)
	select {
	case <-b.Done():
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not leave", b.url)
	}
	b.Kill() // it is gone
	b.Start()
	b.ready(t)
}

// balancer sends requests to one of several gateways, as a load balancer does: to those that say that they are
// ready, and to the next one if nobody listens there. Nothing else is tried again.
type balancer struct {
	gateways []string
	client   *http.Client

	mu    sync.Mutex // guards ready
	ready []bool
}

// look asks the gateways until ctx ends.
func (b *balancer) look(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		for i, url := range b.gateways {
			resp, err := b.client.Get(url + "/readyz")
			ok := err == nil && resp.StatusCode == http.StatusOK
			if err == nil {
				resp.Body.Close()
			}
			b.mu.Lock()
			b.ready[i] = ok
			b.mu.Unlock()
		}
	}
}

// order returns the gateways to try, those that are ready first.
func (b *balancer) order(turn int) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, want := range []bool{true, false} {
		for i := range b.gateways {
			if at := (turn + i) % len(b.gateways); b.ready[at] == want {
				out = append(out, b.gateways[at])
			}
		}
	}
	return out
}

func (b *balancer) post(turn int, body []byte) (status int, answer []byte, err error) {
	for _, url := range b.order(turn) {
		var resp *http.Response
		resp, err = b.client.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		answer, err = io.ReadAll(resp.Body)
		return resp.StatusCode, answer, err
	}
	return 0, nil, err
}

// rollingLoad asks questions with known answers, half of them streamed, until stop; every fourth picture is new.
type rollingLoad struct {
	b      *balancer
	bodies [][]byte
	want   []string
	stop   context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex // guards asked
	asked  int
}

func (l *rollingLoad) answered() int { l.mu.Lock(); defer l.mu.Unlock(); return l.asked }

func (l *rollingLoad) start(t *testing.T, clients int) {
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	for c := range clients {
		l.done.Go(func() {
			for n := c; ctx.Err() == nil; n++ {
				i := n % len(l.bodies)
				body, want := l.bodies[i], l.want[i]
				if n%8 == 7 {
					body, want = questionBody(t, noise(t, int64(10_000*(c+1)+n)), false), ""
				}
				status, answer, err := l.b.post(n, body)
				if got := textOf(answer); err != nil || status != http.StatusOK || got == "" || want != "" && got != want {
					t.Errorf("client %d, request %d: status %d, %v, %.200s; want %q", c, n, status, err, answer, want)
				}
				l.mu.Lock()
				l.asked++
				l.mu.Unlock()
			}
		})
	}
}

// questionBody asks about a picture.
func questionBody(t *testing.T, file []byte, stream bool) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"messages": []any{user(text("Which colour?"), img(file))}, "temperature": 0, "max_tokens": 8, "stream": stream})
	if err != nil {
		t.Error(err)
	}
	return b
}

// textOf is the text of an answer, whole or streamed; "" if it did not come to a good end.
func textOf(answer []byte) string {
	var whole chatAnswer
	if json.Unmarshal(answer, &whole) == nil && len(whole.Choices) == 1 {
		return whole.Choices[0].Message.Content
	}
	words, ok := joinStream(answer)
	if !ok {
		return ""
	}
	return words
}

// TestRollingRestart restarts every process of a fleet in turn, under load: two Encoders, the Store, two P/Ds, and
// two gateways behind what chooses between them. No request fails, and no answer changes.
func TestRollingRestart(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=5ms,decode=1ms,prefill=0ms")
	socket, err := filepath.Glob(filepath.Join(u.runtime, "*", "store.sock"))
	if err != nil || len(socket) != 1 {
		t.Fatalf("the Store's socket: %v, %v", socket, err)
	}
	pd := startByHand(t, "prefill-1", "prefill", "--data-listen", "127.0.0.1:0", "--name", "prefill-1", "--engine", "device", "--engine-dir", "",
		"--device", "encode=5ms,decode=1ms,prefill=0ms", "--arena-bytes", "24MiB", "--resident-bytes", "8MiB", "--store", socket[0])
	var gateways []*byHand
	b := &balancer{client: &http.Client{}}
	for i := range 2 {
		g := startByHand(t, fmt.Sprintf("gateway-%d", i), "gateway", "--drain-notice", "500ms", "--prefill", "http://"+u.address["prefill-0"], "--prefill", pd.url,
			"--encoder", "http://"+u.address["encoder-0"], "--encoder", "http://"+u.address["encoder-1"])
		gateways, b.gateways, b.ready = append(gateways, g), append(b.gateways, g.url), append(b.ready, true)
	}
	load := &rollingLoad{b: b}
	for i := range 6 {
		body := questionBody(t, noise(t, int64(500+i/2)), i%2 == 1)
		status, answer, err := b.post(i, body)
		if err != nil || status != 200 || textOf(answer) == "" {
			t.Fatalf("before any restart: %d, %v, %s", status, err, answer)
		}
		load.bodies, load.want = append(load.bodies, body), append(load.want, textOf(answer))
	}
	looks, stopLooking := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() { b.look(looks) })
	load.start(t, 3)
	step := func(what string, restart func()) {
		t.Helper()
		before, began := load.answered(), time.Now()
		restart()
		eventually(t, "requests go on after "+what, func() bool { return load.answered() > before+3 })
		t.Logf("%s: %v, %d requests answered meanwhile", what, time.Since(began).Round(time.Millisecond), load.answered()-before)
	}
	terminate := func(name string) {
		pid := u.roles()[name]
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" has left", func() bool { now := u.roles()[name]; return now != pid && now != 0 })
	}
	for _, name := range []string{"encoder-0", "encoder-1", "prefill-0"} {
		step(name, func() { replaced(t, gateways, name, func() { terminate(name) }) })
	}
	step("prefill-1", func() { replaced(t, gateways, "prefill-1", func() { pd.restart(t) }) })
	step("the Store", func() { terminate("store") })
	for i, g := range gateways {
		step(fmt.Sprintf("gateway-%d", i), func() { g.restart(t) })
	}
	load.stop()
	load.done.Wait()
	stopLooking()
	looking.Wait()
	b.client.CloseIdleConnections()
	if n := load.answered(); n < 100 {
		t.Errorf("only %d requests were asked meanwhile", n)
	}
}
