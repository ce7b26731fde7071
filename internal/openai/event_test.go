// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// events reads r to its end.
func events(r io.Reader, maxBytes int) (raw []string, err error) {
	er := NewEventReader(r, maxBytes)
	for {
		e, err := er.Next()
		if err != nil {
			return raw, err
		}
		raw = append(raw, string(e.Raw))
	}
}

// TestEventsByteExact is cases P01 and P02 at the reader: whatever the pieces and the line ends, the
// events together are the stream.
func TestEventsByteExact(t *testing.T) {
	f := func(want ...string) {
		t.Helper()
		stream := strings.Join(want, "")
		for name, r := range map[string]io.Reader{
			"whole":      strings.NewReader(stream),
			"one byte":   iotest.OneByteReader(strings.NewReader(stream)),
			"half":       iotest.HalfReader(strings.NewReader(stream)),
			"data + EOF": iotest.DataErrReader(strings.NewReader(stream)),
		} {
			got, err := events(r, 1<<10)
			if d := cmp.Diff(want, got); d != "" || err != io.EOF {
				t.Errorf("%s: %v %s", name, err, d)
			}
		}
	}
	f("data: {\"x\":\"한국어 😀\"}\n\n", "data: [DONE]\n\n")
	f("data: a\r\n\r\n", ": ping\r\n\r\n", "\r\n", "event: x\r\ndata: b\r\n\r\n")
	f("data: a\r\r", "data: b\r\r")
	f("data: a\n\r\n", "data: b\r\n\n")
	f("\n", "\n", "data: a\n\n")
	f()
}

func TestEventsLongLines(t *testing.T) {
	for _, n := range []int{65_537, 1<<20 + 1, 4 << 20, DefaultMaxEventBytes} {
		line := "data: " + strings.Repeat("x", n-len("data: ")-2) + "\n\n"
		for _, next := range []string{"", "data: [DONE]\n\n"} {
			got, err := events(strings.NewReader(": a\n\n"+line+next), DefaultMaxEventBytes)
			if err != io.EOF || len(got) < 2 || got[1] != line {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
}

func TestEventsTooLarge(t *testing.T) {
	f := func(stream string) {
		t.Helper()
		var tooLarge *EventTooLargeError
		if got, err := events(strings.NewReader(stream), 100); !errors.As(err, &tooLarge) || tooLarge.Limit != 100 || len(got) != 1 {
			t.Errorf("got %d events, %v", len(got), err)
		}
	}
	f("data: a\n\n" + strings.Repeat("x", 99) + "\n\n")
	f("data: a\n\n" + strings.Repeat("x", 1<<20))
	f("data: a\n\n" + strings.Repeat("x\n", 1<<10))
	endless := io.MultiReader(strings.NewReader("data: "), zeros{})
	if _, err := events(endless, 1<<20); !errors.As(err, new(*EventTooLargeError)) {
		t.Errorf("got %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestEventsCut(t *testing.T) {
	f := func(r io.Reader, want error, whole int) {
		t.Helper()
		if got, err := events(r, 100); !errors.Is(err, want) || len(got) != whole {
			t.Errorf("got %q, %v", got, err)
		}
	}
	f(strings.NewReader("data: a\n\ndata: b\n"), io.ErrUnexpectedEOF, 1)
	f(strings.NewReader("data: a\n\nda"), io.ErrUnexpectedEOF, 1)
	f(io.MultiReader(strings.NewReader("data: a\n\nda"), iotest.ErrReader(iotest.ErrTimeout)), iotest.ErrTimeout, 1)
	f(stuck{}, io.ErrNoProgress, 0)
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestEventLook(t *testing.T) {
	f := func(raw string, done, finished, failed bool) {
		t.Helper()
		e, err := NewEventReader(strings.NewReader(raw), 1<<10).Next()
		if err != nil || e.Done != done || e.Finished != finished || e.Failed != failed {
			t.Errorf("%q: got %v %v %v, %v", raw, e.Done, e.Finished, e.Failed, err)
		}
	}
	f("data: [DONE]\n\n", true, false, false)
	f("data:[DONE]\r\n\r\n", true, false, false)
	f(`data: {"choices":[{"finish_reason":null}]}`+"\n\n", false, false, false)
	f(`data: {"choices":[{"finish_reason":"stop"}]}`+"\n\n", false, true, false)
	f(`data: {"choices":[{"finish_reason" : null},{"finish_reason" : "length"}]}`+"\n\n", false, true, false)
	f(`data: {"choices":[{"delta":{"content":"\"finish_reason\":\"stop\" [DONE]"}}]}`+"\n\n", false, false, false)
	f(`data: {"error":{"message":"x"}}`+"\n\n", false, false, true)
	f(`data: {"id":"error"}`+"\n\n", false, false, false)
	f(": [DONE]\n\n", false, false, false)
	_, _, stream := goldenResponse(t, "image1_stream")
	finished := 0
	er := NewEventReader(strings.NewReader(stream), 1<<10)
	for {
		e, err := er.Next()
		if err != nil {
			break
		}
		if e.Finished {
			finished++
		}
	}
	if finished != 1 {
		t.Errorf("got %d finished events in a golden stream, want 1", finished)
	}
}

func TestEventData(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		if got := string(Event{Raw: []byte(raw)}.Data()); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
	f("data: a\n\n", "a")
	f("data:a\r\ndata:  b\r\n\r\n", "a\n b")
	f("event: x\rdata: a\r\r", "a")
	f(": c\ndatum: x\n\n", "")
	raw := []byte("data: a\ndata: b\n\n")
	Event{Raw: raw}.Data()
	if string(raw) != "data: a\ndata: b\n\n" {
		t.Errorf("Data changed Raw to %q", raw)
	}
}

// FuzzEvents checks that events are the stream, in order, whatever the pieces are.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\n\n: x\r\n\r\ndata: b\r\rrest"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		whole, errWhole := events(bytes.NewReader(stream), limit)
		bytewise, errByte := events(iotest.OneByteReader(bytes.NewReader(stream)), limit)
		if d := cmp.Diff(whole, bytewise); d != "" || (errWhole == io.EOF) != (errByte == io.EOF) {
			t.Fatalf("%v, %v: %s", errWhole, errByte, d)
		}
		got := strings.Join(whole, "")
		if !strings.HasPrefix(string(stream), got) || errWhole == io.EOF && len(got) != len(stream) {
			t.Fatalf("got %q of %q", got, stream)
		}
	})
}
