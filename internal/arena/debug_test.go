// SPDX-License-Identifier: Apache-2.0

//go:build arenadebug

package arena

import (
	"fmt"
	"strings"
	"testing"
)

func TestDebugPoison(t *testing.T) {
	a, err := New(Config{Name: "test", Bytes: 4096}) // a range is lost with the panic
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := reserve(t, a, 200)
	mem := b.Bytes()
	clear(mem)
	b.Truncate(100)
	if mem[127] != 0 || mem[128] != poisonByte {
		t.Errorf("bytes %#x and %#x about the new end, want 0 and poison", mem[127], mem[128])
	}
	b.Release()
	if mem[0] != poisonByte {
		t.Error("a freed range is not poisoned")
	}
	mem[70] = 1               // a write after the end
	reserve(t, a, 64).Abort() // does not hold what was written to
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "byte 70 was written as 0x1 after its range was freed") {
			t.Errorf("got %q", r)
		}
	}()
	_, _ = a.Reserve(128)
}

func TestDebugHistory(t *testing.T) {
	a := newArena(t, 4096)
	b := reserve(t, a, 64)
	for range keepEvents {
		b.Retain().Release()
	}
	hs := a.Holders()
	if len(hs) != 1 || hs[0].Bytes != 64 || hs[0].References != 1 {
		t.Fatalf("holders %+v", hs)
	}
	for _, want := range []string{"\n  reserve", "arena.TestDebugHistory", "debug_test.go:", "events left out", "\n  Retain"} {
		if !strings.Contains(hs[0].History, want) {
			t.Errorf("no %q in %s", want, hs[0].History)
		}
	}
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "arena.TestDebugHistory") {
		t.Errorf("Close does not tell who holds a range: %v", err)
	}
	b.Release()
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "Release of a range without references") || !strings.Contains(r, "debug_test.go:") {
			t.Errorf("a double release tells only %q", r)
		}
	}()
	b.Release()
}
