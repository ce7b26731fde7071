// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var testLimits = EncodeLimits{Items: 3, ImageBytes: 100, TotalBytes: 150}

func request(sizes ...int) (EncodeRequest, [][]byte) {
	req := EncodeRequest{Request: "r-1"}
	var images [][]byte
	for i, n := range sizes {
		req.Items = append(req.Items, EncodeItem{Identifier: "line\nfeed", Bytes: n, Rows: 4,
			Grants: []Grant{{Address: "127.0.0.1:1", Transfer: "ab", Attempt: 1, Generation: 1 << 52, Bytes: 64}}})
		images = append(images, bytes.Repeat([]byte{byte(i + 1)}, n))
	}
	return req, images
}

// writeEncodeBody writes the body of an encode call to w.
func writeEncodeBody(w io.Writer, req EncodeRequest, images [][]byte) error {
	body, _, err := NewEncodeBody(req, images)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, body)
	return err
}

func body(t *testing.T, sizes ...int) []byte {
	t.Helper()
	var w bytes.Buffer
	req, images := request(sizes...)
	if err := writeEncodeBody(&w, req, images); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

func TestEncodeBodyRoundTrip(t *testing.T) {
	req, images := request(1, 100, 49)
	r, length, err := NewEncodeBody(req, images)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil || int64(len(raw)) != length {
		t.Fatalf("read %d bytes, %v; declared %d", len(raw), err, length)
	}
	for name, rd := range map[string]io.Reader{
		"whole":         bytes.NewReader(raw),
		"byte by byte":  iotest.OneByteReader(bytes.NewReader(raw)),
		"eof with data": iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		gotReq, gotImages, err := ReadEncodeBody(rd, testLimits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(req, gotReq); d != "" {
			t.Errorf("%s: request (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(images, gotImages); d != "" {
			t.Errorf("%s: images (-want +got):\n%s", name, d)
		}
	}
}

func TestReadEncodeBodyRefuses(t *testing.T) {
	f := func(raw string, status int, text string) {
		t.Helper()
		_, _, err := ReadEncodeBody(strings.NewReader(raw), testLimits)
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("got %v, want a control.Error", err)
		}
		if e.Status != status || !strings.Contains(e.Message, text) {
			t.Errorf("got %d %q, want %d with %q", e.Status, e.Message, status, text)
		}
	}
	good := string(body(t, 3, 4))
	f("", 400, "ends after 0 bytes")
	f(good[:10], 400, "ends after 10 bytes")
	f(good[:len(good)-1], 400, "item 1: body ends after 3 of 4 bytes")
	f(good[:len(good)-4], 400, "item 1: body ends after 0 of 4 bytes")
	f(good+"x", 400, "bytes after the last image")
	f("{}\n", 400, "no items")
	f("[1]\n", 400, "JSON line")
	f("{} {}\n", 400, "JSON line")
	f(`{"items":[{"bytes":0}]}`+"\n", 400, "0 bytes")
	f(`{"items":[{"bytes":-1}]}`+"\n", 400, "-1 bytes")
	f(`{"items":[{"bytes":1e30}]}`+"\n", 400, "JSON line")
	f(`{"items":[{"bytes":101}]}`+"\n", 413, "image of 101 bytes exceeds 100")
	f(`{"items":[{"bytes":9223372036854775807}]}`+"\n", 413, "exceeds 100")
	f(`{"items":[{"bytes":1}]}`+"\n", 400, "identifier of 0 bytes")
	f(`{"items":[{"bytes":1,"identifier":"`+strings.Repeat("x", 513)+`"}]}`+"\n", 400, "identifier of 513 bytes")
	f(`{"items":[{"bytes":100,"identifier":"i"},{"bytes":51}]}`+"\n", 413, "151 bytes, which exceeds 150")
	f(`{"items":[{"bytes":1},{"bytes":1},{"bytes":1},{"bytes":1}]}`+"\n", 413, "4 items exceed 3")
	f(strings.Repeat(" ", MaxEncodeLine+1)+"\n", 413, "JSON line exceeds")
}

// An endless line must be refused after the limit, not read for ever.
func TestReadEncodeBodyEndlessLine(t *testing.T) {
	r := &endless{}
	if _, _, err := ReadEncodeBody(r, testLimits); err == nil {
		t.Fatal("an endless line was accepted")
	}
	if r.n > 2*MaxEncodeLine {
		t.Errorf("read %d bytes of an endless line; the limit is %d", r.n, MaxEncodeLine)
	}
}

type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '{'
	}
	e.n += len(p)
	return len(p), nil
}

// A connection that breaks is not the caller's fault and must not look like one.
func TestReadEncodeBodyBrokenConnection(t *testing.T) {
	raw := body(t, 3, 4)
	cut := io.MultiReader(bytes.NewReader(raw[:len(raw)-2]), iotest.ErrReader(io.ErrClosedPipe))
	_, _, err := ReadEncodeBody(cut, testLimits)
	var e *Error
	if !errors.Is(err, io.ErrClosedPipe) || errors.As(err, &e) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

func TestNewEncodeBodyRefuses(t *testing.T) {
	f := func(req EncodeRequest, images [][]byte, text string) {
		t.Helper()
		err := writeEncodeBody(io.Discard, req, images)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	req, images := request(3, 4)
	f(req, images[:1], "1 images for 2 items")
	f(req, [][]byte{images[0], images[0]}, "item 1: image of 3 bytes, declared 4")
	req.Request = strings.Repeat("x", MaxEncodeLine)
	f(req, images, "JSON line of")
}

func FuzzReadEncodeBody(f *testing.F) {
	req, images := request(3, 4)
	var w bytes.Buffer
	if err := writeEncodeBody(&w, req, images); err != nil {
		f.Fatal(err)
	}
	f.Add(w.Bytes())
	f.Add([]byte(`{"items":[{"bytes":1}]}` + "\nx"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, images, err := ReadEncodeBody(bytes.NewReader(raw), testLimits)
		if err != nil {
			return
		}
		// What is accepted survives a round trip, and its images are the tail of the input.
		var w bytes.Buffer
		if err := writeEncodeBody(&w, req, images); err != nil {
			t.Fatalf("accepted body cannot be written: %v", err)
		}
		if tail := bytes.Join(images, nil); !bytes.HasSuffix(raw, tail) {
			t.Fatal("images are not the tail of the body")
		}
	})
}
