// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

var sample = header{
	Version: WireVersion, Type: frameData, Status: statusCorrupt, Transfer: transferID{0: 0x11, 15: 0xff},
	Attempt: 0x01020304, Generation: 0x05060708090a0b0c, Length: 0x10, Check: 0x1112131415161718,
}

// TestHeaderBytes pins the layout of docs/wire.md. Changing it takes another WireVersion.
func TestHeaderBytes(t *testing.T) {
	want := strings.Join([]string{
		"41465731", "0200", "02", "0d", // magic, version, type, status
		"110000000000000000000000000000ff", // transfer
		"04030201", "00000000",             // attempt, reserved
		"0c0b0a0908070605", "1000000000000000", "1817161514131211", // generation, length, check
	}, "")
	got := sample.append(nil)
	if h := hex.EncodeToString(got[:offSum]); h != want {
		t.Errorf("got  %s\nwant %s", h, want)
	}
	if len(got) != headerBytes {
		t.Errorf("header has %d bytes", len(got))
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	b := sample.append(nil)
	got, err := parseHeader(b)
	if err != nil || got != sample {
		t.Errorf("got %+v, %v; want %+v", got, err, sample)
	}
}

// Any single flipped bit is noticed.
func TestHeaderFlips(t *testing.T) {
	for bit := range headerBytes * 8 {
		b := sample.append(nil)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := parseHeader(b)
		if v := (versionError{}); !errors.Is(err, errMalformed) && !errors.As(err, &v) {
			t.Errorf("bit %d: got %v", bit, err)
		}
	}
}

func TestHeaderReserved(t *testing.T) {
	f := func(b []byte, off int) {
		t.Helper()
		b[off] = 1
		resum(b)
		if _, err := parseHeader(b); !errors.Is(err, errMalformed) {
			t.Errorf("reserved byte %d set: got %v", off, err)
		}
	}
	f(sample.append(nil), offReserved)
	f(header{Type: framePing}.append(nil), offCheck) // only data has a sum
}

func resum(b []byte) {
	sum := xxh3.Hash(b[:offSum])
	for i := range 8 {
		b[offSum+i] = byte(sum >> (8 * i))
	}
}

func TestReadHeaderEnds(t *testing.T) {
	b := sample.append(nil)
	if _, err := readHeader(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("empty stream: got %v", err)
	}
	if _, err := readHeader(strings.NewReader(string(b[:63]))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short stream: got %v", err)
	}
}

func TestReadTextLimit(t *testing.T) {
	_, err := readText(endless{}, header{Length: maxTextBytes + 1})
	if !errors.Is(err, errMalformed) {
		t.Errorf("got %v", err)
	}
	long := appendText(nil, header{Type: frameComplete}, strings.Repeat("x", 2*maxTextBytes))
	if len(long) != headerBytes+maxTextBytes {
		t.Errorf("a long text makes a frame of %d bytes", len(long))
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestParseTransfer(t *testing.T) {
	id := transferID{1, 2, 3}
	if got, err := parseTransfer(id.String()); err != nil || got != id {
		t.Errorf("got %v, %v", got, err)
	}
	for _, s := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 33), strings.Repeat("0", 34)} {
		if _, err := parseTransfer(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestStatusNames(t *testing.T) {
	seen := map[string]bool{}
	for s := statusComplete; s <= statusGo; s++ {
		if n := s.String(); n == "" || seen[n] {
			t.Errorf("status %d is called %q", s, n)
		} else {
			seen[n] = true
		}
	}
	if got := status(99).class(); !errors.Is(got, ErrRejected) {
		t.Errorf("a status of a later version is %v", got)
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(sample.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes {
			return
		}
		fixed := [headerBytes]byte(b)
		resum(fixed[:]) // or nothing behind the sum would ever be reached
		h, err := parseHeader(fixed[:])
		if err != nil {
			return
		}
		if got := h.append(nil); string(got) != string(fixed[:]) {
			t.Errorf("accepted\n%x, which encodes as\n%x", fixed, got)
		}
	})
}
