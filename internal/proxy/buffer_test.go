// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"strings"
	"testing"
	"unsafe"
)

func TestBufferHasRoom(t *testing.T) {
	for _, n := range []int64{0, 1, minPooled - 1, minPooled, minPooled + 1, 1 << 20, 1<<20 + 1, maxPooled, maxPooled + 1} {
		for range 2 { // the second may be one used before
			b := NewBuffer(n)
			if len(b.b) != 0 || int64(cap(b.b)) < n {
				t.Errorf("asked for %d: length %d, capacity %d", n, len(b.b), cap(b.b))
			}
			b.b = append(b.b, "left behind"...)
			b.Release()
		}
	}
}

// Memory is not handed out again while anyone may read it.
func TestBufferIsNotUsedAgainWhileShared(t *testing.T) {
	b := NewBuffer(minPooled)
	memory := unsafe.SliceData(b.b[:1])
	body := b.Share(strings.NewReader("image"))
	b.Retain() // a call that fails and keeps its share
	b.Release()
	handedOut := func() bool {
		for range 20 {
			if unsafe.SliceData(NewBuffer(minPooled).b[:1]) == memory {
				return true
			}
		}
		return false
	}
	if handedOut() {
		t.Fatal("memory was used again while its body was open")
	}
	if got, err := io.ReadAll(body); string(got) != "image" || err != nil {
		t.Fatalf("body %q, %v", got, err)
	}
	for range 2 { // net/http may close a body twice; it has one share
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if b.Shares() != 1 || handedOut() {
		t.Fatalf("%d shares, want the one of the call that failed", b.Shares())
	}
}

func TestBufferReleasedTooOften(t *testing.T) {
	var none *Buffer
	none.Release()
	b := NewBuffer(1)
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic though a share was given back twice")
		}
	}()
	b.Release()
}
