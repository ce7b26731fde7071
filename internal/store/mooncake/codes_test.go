// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"slices"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Every code of a GET has its class, and only where memory is in doubt is it held.
func TestGetCodes(t *testing.T) {
	f, c, read := startWithFake(t)
	for _, tc := range []struct {
		code  code
		class error
		calls int // how often the server is asked
	}{
		{codeNotFound, store.ErrMiss, 1},
		{codeNotReady, store.ErrMiss, 1},
		{codeInvalidReplica, store.ErrRejected, 1},
		{codeBadChecksum, store.ErrMiss, 1},
		{codeLeaseExpired, store.ErrMiss, 2}, // worth one second reading
		{codeNoSpace, store.ErrRejected, 1},
		{codeBadParams, store.ErrRejected, 1}, // while the mapping is there
		{codeTenantQuota - 1, store.ErrRejected, 1},
		{codeTransferFailed, store.ErrUnconfirmed, 1},
		{codeInternal, store.ErrUnconfirmed, 1},
		{-12345, store.ErrUnconfirmed, 1},
	} {
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(tc.code)} })
		before, held := f.count(fnGet), c.Stats().Quarantined
		k := embedding.Key(tc.code.String())
		if g := read(k, 100); !errors.Is(g.Err, tc.class) {
			t.Errorf("%v: %v, want %v", tc.code, g.Err, tc.class)
		}
		if n := f.count(fnGet) - before; n != tc.calls {
			t.Errorf("%v: %d calls, want %d", tc.code, n, tc.calls)
		}
		doubt := tc.class == store.ErrUnconfirmed
		if got := c.Stats().Quarantined > held; got != doubt {
			t.Errorf("%v: quarantined: %v, want %v", tc.code, got, doubt)
		}
		if got := c.wary.has(string(k)); got != doubt {
			t.Errorf("%v: distrusted: %v, want %v", tc.code, got, doubt)
		}
		if c.Stats().BreakerOpen {
			t.Errorf("%v opened the breaker", tc.code)
		}
	}
	eventually(t, "quarantined memory is back", func() bool { return c.Stats().QuarantineRanges == 0 })
	if st := c.Stats(); st.Rotations == 0 || f.count(fnUnmap) == 0 {
		t.Errorf("%d rotations, %d unmaps, want some", st.Rotations, f.count(fnUnmap))
	}
}

// The fault-injecting Store of other packages' tests fails as this client does.
func TestClassesAgree(t *testing.T) {
	classes := []error{store.ErrMiss, store.ErrRejected, store.ErrUnavailable, store.ErrUnconfirmed}
	for n := -2000; n < 0; n++ {
		if n <= int(codeOtherMode) || n == int(codeBadChecksum) {
			continue // unknown to it
		}
		for _, class := range classes {
			if got, want := errors.Is(getClass(code(n)), class), errors.Is(testkit.GetError(n), class); got != want {
				t.Errorf("GET that ends with %v: %v is %v, want %v", code(n), class, got, want)
			}
		}
	}
}

func TestPutCodes(t *testing.T) {
	f, c, _ := startWithFake(t)
	for _, tc := range []struct {
		code  code
		class error
		calls int
	}{
		{codeOK, nil, 1},
		{codeNotFound, store.ErrRejected, 1}, // removed before it was whole
		{codeIllegalClient, store.ErrRejected, 1},
		{codeReplicating, store.ErrRejected, 1},
		{codeNoSpace, store.ErrRejected, 1 + noSpaceTries},
		{codeTenantQuota, store.ErrRejected, 1},
		{codeTransferFailed, store.ErrUnconfirmed, 1},
		{codeInternal, store.ErrUnconfirmed, 1},
	} {
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(tc.code)} })
		before := f.count(fnPut)
		k := embedding.Key(tc.code.String())
		if err := put(t, c, c.arena, k, 100, 1); !errors.Is(err, tc.class) || tc.class == nil && err != nil {
			t.Errorf("%v: %v, want %v", tc.code, err, tc.class)
		}
		if n := f.count(fnPut) - before; n != tc.calls {
			t.Errorf("%v: %d calls, want %d", tc.code, n, tc.calls)
		}
		if got, want := c.wary.has(string(k)), tc.class == store.ErrUnconfirmed; got != want {
			t.Errorf("%v: distrusted: %v, want %v", tc.code, got, want)
		}
	}
	idle(t, c.arena)
}

func TestLeaseExpiredOnce(t *testing.T) {
	f, _, read := startWithFake(t)
	first := true
	f.set(func(_ uint32, _ []string, mem [][]byte) []int64 {
		if first {
			first = false
			return []int64{int64(codeLeaseExpired)}
		}
		return []int64{int64(copy(mem[0], "good"))}
	})
	if g := read("k", 100); g.Err != nil {
		t.Errorf("second reading: %v", g.Err)
	}
}

// One question for each distinct key goes out, whatever the caller repeats.
func TestDuplicates(t *testing.T) {
	f, c, _ := startWithFake(t)
	f.set(func(_ uint32, keys []string, mem [][]byte) []int64 {
		if !slices.Equal(keys, []string{"a", "b"}) || len(mem[0]) != 64 || len(mem[1]) != 10 {
			t.Errorf("asked for %q in buffers of %d and %d bytes", keys, len(mem[0]), len(mem[1]))
		}
		return []int64{int64(copy(mem[0], "aa")), int64(codeNotFound)}
	})
	gots := c.Get(t.Context(), []store.Want{{Key: "a", Bytes: 2}, {Key: "b", Bytes: 10}, {Key: "a", Bytes: 64}, {Key: "a", Bytes: 1}})
	for i, want := range []error{nil, store.ErrMiss, nil, store.ErrRejected} {
		if !errors.Is(gots[i].Err, want) || want == nil && (gots[i].Err != nil || string(gots[i].Buf.Bytes()) != "aa") {
			t.Errorf("item %d: %v, want %v", i, gots[i].Err, want)
		}
		if gots[i].Buf != nil {
			gots[i].Buf.Release()
		}
	}
}

// Answers that make no sense leave memory in doubt.
func TestSenselessAnswers(t *testing.T) {
	f, c, read := startWithFake(t)
	for i, answer := range [][]int64{{}, {1, 1}, {101}, {0}} {
		f.set(func(uint32, []string, [][]byte) []int64 { return answer })
		g := read(key(i), 100)
		if g.Err == nil {
			t.Errorf("answer %v was accepted", answer)
		}
		if !slices.Equal(answer, []int64{0}) && !errors.Is(g.Err, store.ErrUnconfirmed) {
			t.Errorf("answer %v: %v, want ErrUnconfirmed", answer, g.Err)
		}
	}
	eventually(t, "quarantined memory is back", func() bool { return c.Stats().QuarantineRanges == 0 })
}
