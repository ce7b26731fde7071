// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"afterimage/internal/client"
	"afterimage/internal/model"
)

// hold keeps a role down: it kills the role and takes its port before the restart can. The role is
// free to come back when the returned function is called.
func (u *upRun) hold(t *testing.T, name string) (release func()) {
	t.Helper()
	u.kill(t, name)
	var ln net.Listener
	eventually(t, "the port of "+name+" is taken", func() (ok bool) {
		var err error
		if ln, err = net.Listen("tcp", u.address[name]); errors.Is(err, syscall.EADDRINUSE) {
			if pid := u.roles()[name]; pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it was back first, or has not gone yet
			}
			return false
		}
		return err == nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	release = sync.OnceFunc(func() { ln.Close(); wg.Wait() })
	t.Cleanup(release)
	return release
}

// get asks the gateway for a path.
func (u *upRun) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := u.client.HTTP.Get(u.url + path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// unready checks that the gateway lives, and says what it lacks.
func (u *upRun) unready(t *testing.T, why string) {
	t.Helper()
	live, _ := u.get(t, "/livez")
	health, _ := u.get(t, "/health")
	ready, reason := u.get(t, "/readyz")
	if live != 200 || health != 503 || ready != 503 || !strings.Contains(reason, why) {
		t.Errorf("/livez %d, /health %d, /readyz %d %s; want 200, 503, 503 with %q", live, health, ready, reason, why)
	}
}

// works waits until the gateway sees the whole fleet.
func (u *upRun) works(t *testing.T) {
	t.Helper()
	eventually(t, "all workers are up", func() bool {
		resp, err := u.client.HTTP.Get(u.url + "/v1/fleet")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var fleet struct{ Encoders, Prefills []struct{ Up bool } }
		if err := json.NewDecoder(resp.Body).Decode(&fleet); err != nil {
			t.Fatal(err)
		}
		for _, w := range append(fleet.Encoders, fleet.Prefills...) {
			if !w.Up {
				return false
			}
		}
		return len(u.roles()) == len(u.address)
	})
}

// askAgain asks as a client does that heeds Retry-After: until the answer is not 503.
func (u *upRun) askAgain(t *testing.T, encoder string, files ...[]byte) (a client.Answer) {
	t.Helper()
	eventually(t, "the fleet answers", func() bool {
		var err error
		a, err = u.ask(t.Context(), encoder, files...)
		busy, ok := errors.AsType[*client.Error](err)
		if err != nil && (!ok || busy.Status != 503) {
			t.Fatal(err)
		}
		return err == nil
	})
	return a
}

// refused sends a request that must get a 503 in the API's shape, with a time to come back.
func (u *upRun) refused(t *testing.T, want string, parts ...any) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"messages": []any{user(parts...)}, "max_tokens": 4})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := u.client.HTTP.Post(u.url+"/v1/chat/completions", "application/json", strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Error struct{ Message, Type string }
	}
	err = json.NewDecoder(resp.Body).Decode(&body)
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != 503 || after < 1 || err != nil || !strings.Contains(body.Error.Message, want) {
		t.Errorf("status %d, Retry-After %d, %+v (%v); want 503 that names %s", resp.StatusCode, after, body.Error, err, want)
	}
}

// TestKilledRolesComeBack kills each role in turn, looks at the fleet without it and at reuse after it.
func TestKilledRolesComeBack(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	file := picture(t, 64, 48, 1)
	want := u.mustAsk(t, "0", file).Text
	u.stored(t, "encoder-0", 1)

	t.Run("an Encoder finds its earlier outputs in the Store", func(t *testing.T) { // K09
		u.kill(t, "encoder-0")
		if a := u.askAgain(t, "0", file); sources(a) != "store" || a.Text != want {
			t.Errorf("source %q, text %q, want store and %q", sources(a), a.Text, want)
		}
	})
	t.Run("no Encoder", func(t *testing.T) {
		free0, free1 := u.hold(t, "encoder-0"), u.hold(t, "encoder-1")
		u.refused(t, "no Encoder is ready", img(picture(t, 64, 48, 2)), text("what?"))
		if a := u.mustAsk(t, "", file); a.Text != want || a.Items[0].Encoder != "" {
			t.Errorf("a picture that is known: %q, %+v, want %q", a.Text, a.Items, want)
		}
		if got := u.chat(t, user(text("Hello"))); got == "" {
			t.Error("a question without a picture has no answer")
		}
		u.unready(t, "no Encoder is ready")
		free0()
		free1()
		u.works(t)
		if a := u.mustAsk(t, "1", file); sources(a) != "store" || a.Text != want {
			t.Errorf("afterwards: source %q, text %q, want store and %q", sources(a), a.Text, want)
		}
	})
	t.Run("no prefill worker", func(t *testing.T) {
		free := u.hold(t, "prefill-0")
		u.refused(t, "no P/D is ready", img(file), text("what?"))
		u.refused(t, "no P/D is ready", text("Hello"))
		u.unready(t, "no P/D is ready")
		free()
		u.works(t)
		if a := u.mustAsk(t, "", file); a.Text != want {
			t.Errorf("afterwards: %q, want %q", a.Text, want)
		}
	})
	t.Run("no Store", func(t *testing.T) { u.checkStoreLoss(t) })
	t.Run("the gateway", func(t *testing.T) {
		u.kill(t, "gateway")
		eventually(t, "the gateway is back on its port", func() bool {
			resp, err := u.client.HTTP.Get(u.url + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == 200
		})
		u.works(t)
		if a := u.mustAsk(t, "", file); a.Text != want {
			t.Errorf("afterwards: %q, want %q", a.Text, want)
		}
	})
}

// checkStoreLoss takes the Store away and brings an empty one back: reads are misses, never foreign
// bytes, and reuse begins anew.
func (u *upRun) checkStoreLoss(t *testing.T) {
	first, second := picture(t, 64, 48, 11), picture(t, 64, 48, 12)
	want := u.mustAsk(t, "0", first).Text
	u.stored(t, "encoder-0", 1)
	free := u.hold(t, "store")
	if a := u.mustAsk(t, "1", first); sources(a) != "encoded" || a.Text != want {
		t.Errorf("without a Store: source %q, text %q, want encoded and %q", sources(a), a.Text, want)
	}
	free()
	u.works(t)
	other := u.mustAsk(t, "0", second).Text
	// Both Encoders look for the Store again at their own pace.
	fresh := uint8(20)
	eventually(t, "pictures are reused through the new Store", func() bool {
		fresh++
		file := picture(t, 64, 48, fresh)
		a := u.mustAsk(t, "0", file)
		b := u.mustAsk(t, "1", file)
		if a.Text != b.Text {
			t.Errorf("two Encoders, two answers: %q and %q", a.Text, b.Text)
		}
		return sources(b) == "store"
	})
	if a := u.mustAsk(t, "1", second); a.Text != other {
		t.Errorf("after the Store came back: %q, want %q", a.Text, other)
	}
}

// TestPrefillKilledMidAnswer: the client of a stream that cannot go on gets an error frame.
func TestPrefillKilledMidAnswer(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	for range 20 {
		got := u.cutStory(t, "prefill-0")
		u.askAgain(t, "")
		if strings.Contains(got, `"finish_reason":"stop"`) {
			continue // the worker was faster than the kill
		}
		if !strings.Contains(got, `data: {"error":{`) || !strings.HasSuffix(got, "\n\ndata: [DONE]\n\n") || strings.Contains(got, `"finish_reason":"`) {
			t.Errorf("the stream ends: ...%s", got[max(0, len(got)-400):])
		}
		if got := u.chat(t, user(text("Hello"))); got == "" {
			t.Error("no answer from the worker that came back")
		}
		return
	}
	t.Fatal("no answer was long enough to be cut")
}

// cutStory asks for a long answer, kills a worker at its first words and returns the rest.
func (u *upRun) cutStory(t *testing.T, worker string) (rest string) {
	t.Helper()
	pid := u.roles()[worker]
	if pid == 0 { // which would be everybody, to the kernel
		t.Fatalf("%s does not run", worker)
	}
	resp, err := u.client.HTTP.Post(u.url+"/v1/chat/completions", "application/json", strings.NewReader(story))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("the stream begins with %q (%v)", line, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// story asks for one of the longest answers of the random model, 791 tokens.
const story = `{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":3000,"stream":true}`

// TestEncoderKilledMidEncode: the images of an Encoder that dies over them are encoded by the other.
func TestEncoderKilledMidEncode(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	u.mustAsk(t, "", noise(t, 39)) // what pictures of this size yield is known then
	files := make([][]byte, 6)
	for i := range files {
		files[i] = noise(t, int64(40+i))
	}
	pid := u.roles()["encoder-0"]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// One request with all pictures: some of them are routed to the Encoder that stands still.
	type result struct {
		answer client.Answer
		err    error
	}
	done := make(chan result, 1)
	go func() {
		a, err := u.ask(t.Context(), "", files...)
		done <- result{a, err}
	}()
	eventually(t, "the Encoder that stands still has pictures to encode", func() bool { return unread(t, u.address["encoder-0"]) > 4096 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || len(got.answer.Items) != len(files) {
		t.Fatalf("%v, %+v", got.err, got.answer)
	}
	for i, it := range got.answer.Items {
		// Those that had come before the repair are resident by then, or in the Store.
		if it.Encoder != "encoder-1" && it.Encoder != "" {
			t.Errorf("picture %d came from %s", i, it.Encoder)
		}
	}
	if got.answer.Attempts < 2 || u.count(t, "gateway", "afterimage_gateway_repairs_total", "") < 1 {
		t.Errorf("%d attempts and no repair counted", got.answer.Attempts)
	}
	u.works(t)
	if again := u.mustAsk(t, "0", files...); again.Text != got.answer.Text {
		t.Errorf("repaired answer %q, a calm one %q", got.answer.Text, again.Text)
	}
}

// unread is how many bytes wait at a TCP address for a process that does not read.
func unread(t *testing.T, address string) (bytes int64) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	local := fmt.Sprintf("0100007F:%04X", n)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[1] != local || f[3] != "01" {
			continue
		}
		_, rx, _ := strings.Cut(f[4], ":")
		waiting, _ := strconv.ParseInt(rx, 16, 64)
		bytes += waiting
	}
	return bytes
}
