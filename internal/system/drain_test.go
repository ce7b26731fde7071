// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/model"
)

// TestDrain tells workers of a loaded fleet to leave, by command and by SIGTERM: no request fails, what the
// worker had made is in the Store afterwards, and up starts it afresh.
func TestDrain(t *testing.T) {
	// With admission at the second sighting, outputs are in the Encoder's cache and not in the Store.
	u := startUp(t, append(pair(t, model.MLP), "--encoder-admission", "second-sighting", "--prefill-resident-bytes", "0")...)
	var files [][]byte
	var want []string
	for i := range 4 {
		files = append(files, noise(t, int64(60+i)))
		want = append(want, u.mustAsk(t, "0", files[i]).Text)
	}
	if n := u.count(t, "store", "afterimage_store_objects", ""); n != 0 {
		t.Fatalf("%v objects in the Store before anything was seen twice", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var mu sync.Mutex
	asked := 0
	for c := range 3 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				fresh := noise(t, int64(1000*(c+1)+n))
				if _, err := u.ask(t.Context(), "", files[n%4], fresh); err != nil {
					t.Errorf("a request during the drain: %v", err)
				}
				mu.Lock()
				asked++
				mu.Unlock()
			}
		})
	}
	out, errs, status := run(t, "drain", "encoder-0", "--url", u.url)
	if status != 0 || !strings.Contains(out, "encoder-0 is draining\nencoder-0 has left") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	u.works(t)
	if err := syscall.Kill(u.roles()["encoder-1"], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	pid := u.roles()["encoder-1"]
	eventually(t, "encoder-1 has left", func() bool { return u.roles()["encoder-1"] != pid })
	u.works(t)
	stop()
	load.Wait()
	if asked < 10 {
		t.Errorf("only %d requests were asked meanwhile", asked)
	}
	for i, file := range files {
		if a := u.mustAsk(t, "1", file); sources(a) != "store" || a.Text != want[i] {
			t.Errorf("picture %d afterwards: source %q, %q, want store, %q", i, sources(a), a.Text, want[i])
		}
	}
}

// TestDrainPrefill: a P/D that is told to leave finishes the answer that it is at.
func TestDrainPrefill(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	done := make(chan string, 1)
	go func() {
		status, body := u.post(t, map[string]any{"messages": []any{user(text("Hello"))}, "temperature": 0, "max_tokens": 600, "stream": true})
		done <- fmt.Sprint(status, string(body))
	}()
	eventually(t, "the answer is in work", func() bool {
		return u.count(t, "gateway", "afterimage_gateway_requests_running", "") == 1
	})
	if out, errs, status := run(t, "drain", "prefill-0", "--url", u.url); status != 0 {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	select {
	case got := <-done:
		if !strings.HasPrefix(got, "200") || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, `"error"`) {
			t.Errorf("the answer: ...%s", got[max(0, len(got)-300):])
		}
	case <-time.After(20 * time.Second):
		t.Error("the answer did not end")
	}
	u.works(t)
	if got := u.chat(t, user(text("Hello"))); got == "" {
		t.Error("no answer from the worker that came back")
	}
}

// TestDrainRefuses: who is told to leave must be there, and the order well-formed.
func TestDrainRefuses(t *testing.T) {
	u := startUp(t, "--engine", "device")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"the fleet has encoder-0, encoder-1, prefill-0", []string{"drain", "encoder-7", "--url", u.url}},
		{"too short", []string{"drain", "encoder-0", "--url", u.url, "--timeout", "0s"}},
		{"--url", []string{"drain", "encoder-0", "--url", "http://127.0.0.1:1"}},
		{"no trace", []string{"trace", "nobody", "--url", u.url}},
	} {
		if _, errs, status := run(t, c.args...); status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %q; want %q", c.args, status, errs, c.want)
		}
	}
	resp, err := u.client.HTTP.Post("http://"+u.address["encoder-0"]+"/v1/drain", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("an order that is no JSON: %d", resp.StatusCode)
	}
	u.works(t)
	a := u.mustAsk(t, "", picture(t, 64, 48, 1), picture(t, 64, 48, 1))
	out, errs, status := run(t, "trace", a.Request, "--url", u.url)
	for _, want := range []string{"request " + a.Request + ": status 200, on prefill-0", "source", "road", "queue ms", "wait ms", "encoded", "total"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("trace: status %d, %s%s; want %q", status, out, errs, want)
		}
	}
}
