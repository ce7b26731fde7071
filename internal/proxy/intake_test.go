// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"

	"afterimage/internal/openai"
)

func TestIntakeGrows(t *testing.T) {
	for _, n := range []int{0, 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		want := strings.Repeat("x", n)
		for _, announced := range []int64{-1, int64(n), int64(n) + 1000, 1 << 40} {
			for name, r := range map[string]io.Reader{
				"plain": strings.NewReader(want), "eof with data": iotest.DataErrReader(strings.NewReader(want)),
			} {
				in := &Intake{r: r, announced: announced, explain: func(err error) error { return err }}
				err := in.settle()
				if announced >= 0 && announced < 4<<20 && int64(cap(in.buf.b)) <= announced {
					t.Errorf("%d bytes, announced %d: no room for the rest in %d", n, announced, cap(in.buf.b))
				}
				before := unsafe.SliceData(in.buf.b[:1])
				if err != nil {
					t.Fatal(err)
				}
				got, err := in.Rest()
				if err != nil || string(got.b) != want || unsafe.SliceData(got.b[:1]) != before {
					t.Fatalf("%d bytes, announced %d, %s: %v", n, announced, name, err)
				}
				if max := 4*n + 8<<20; cap(got.b) > max { // announcing takes no memory
					t.Errorf("%d bytes, announced %d: capacity %d", n, announced, cap(got.b))
				}
				got.Release()
			}
		}
	}
}

func TestBodyError(t *testing.T) {
	f := func(err error, status int) {
		t.Helper()
		got := bodyError(err, 5, 100)
		if status == StatusLeft {
			if !errors.Is(got, context.Canceled) {
				t.Errorf("%v: got %v, want that the client left", err, got)
			}
			return
		}
		if e := openai.AsError(got); e.Status != status {
			t.Errorf("%v: got %d %v, want %d", err, e.Status, got, status)
		}
	}
	f(&http.MaxBytesError{Limit: 100}, 413)
	f(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 408)
	f(&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, StatusLeft)
	f(io.ErrUnexpectedEOF, 400)
	f(errors.New("malformed chunked encoding"), 400)
}

// TestSlowBody (S03): a client that sends next to nothing is cut off; one that keeps the pace is not.
func TestSlowBody(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := TakeBody(w, r, BodyLimits{MaxBytes: 1 << 20, Grace: 30 * time.Millisecond})
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		w.Write(body.b)
		body.Release()
	}))
	defer s.Close()
	// The server reads on after a short body before it answers, and closes after a long one.
	for _, length := range []string{"1000", "1000000"} {
		nc, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "+length+"\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if err := nc.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), "1 bytes in the time given") {
			t.Errorf("length %s: got %q, %v", length, answer, err)
		}
	}
	resp, err := s.Client().Post(s.URL, "", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 1<<20 {
		t.Errorf("a body at full speed: %d bytes, %v", len(b), err)
	}
}

// deadlines records what is asked of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
	sets int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.last, d.sets = t, d.sets+1; return nil }

// TestReplyLiftsItsDeadline: the connection's next request must not inherit it.
func TestReplyLiftsItsDeadline(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	out := NewReply(d, time.Minute)
	out.start("text/event-stream")
	for range 3 {
		if err := out.write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if d.last.IsZero() || d.sets != 3 {
		t.Errorf("%d deadlines set for 3 writes, the last %v", d.sets, d.last)
	}
	out.End()
	if !d.last.IsZero() {
		t.Errorf("the deadline %v is left behind", d.last)
	}
}

// TestTooLargeIsNotRead: what a client announces beyond the limit is refused before a byte of it has come.
func TestTooLargeIsNotRead(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(errors.New("it was read")))
	r.ContentLength = 101
	_, err := NewIntake(httptest.NewRecorder(), r, BodyLimits{MaxBytes: 100})
	if e := openai.AsError(err); err == nil || e.Status != http.StatusRequestEntityTooLarge || !strings.Contains(e.Message, "100") {
		t.Errorf("got %v, want a 413 that names the limit", err)
	}
}
