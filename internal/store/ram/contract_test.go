// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"testing"

	"afterimage/internal/testkit"
)

func TestContractByLoan(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		path, a := socket(t), newMapped(t, 16<<20)
		srv, _ := serve(t, path, Config{MaxBytes: 16 << 20, Mapped: true})
		c := dial(t, ClientConfig{Path: path, Arena: a})
		if c.link.Load() == nil {
			t.Fatal("no link between mapped arenas")
		}
		t.Cleanup(func() {
			eventually(t, "end of all loans", func() bool { st := srv.Stats(); return st.Loans == 0 && st.LoanBytes == 0 && st.ReadingBytes == 0 })
		})
		return testkit.StoreUnderTest{Store: c, Arena: a}
	})
}

func TestContractByCopy(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		path, a := socket(t), newMapped(t, 16<<20)
		serve(t, path, Config{MaxBytes: 16 << 20, Mapped: true})
		return testkit.StoreUnderTest{Store: dial(t, ClientConfig{Path: path, Arena: a, Copy: true}), Arena: a}
	})
}

func TestContractByStream(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		path, a := socket(t), newArena(t, 16<<20)
		serve(t, path, Config{MaxBytes: 16 << 20})
		return testkit.StoreUnderTest{Store: dial(t, ClientConfig{Path: path, Arena: a, Stream: true}), Arena: a}
	})
}

func TestContractInProcess(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		a := newArena(t, 16<<20)
		l, err := NewLocal(Config{MaxBytes: 16 << 20, Logger: quiet}, a)
		if err != nil {
			t.Fatal(err)
		}
		return testkit.StoreUnderTest{Store: l, Arena: a}
	})
}
