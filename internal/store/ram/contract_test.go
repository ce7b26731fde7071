// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"testing"

	"afterimage/internal/testkit"
)

func TestContractOverUnixSocket(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		path, a := socket(t), newArena(t, 16<<20)
		serve(t, path, Config{MaxBytes: 16 << 20})
		return testkit.StoreUnderTest{Store: dial(t, ClientConfig{Path: path, Arena: a}), Arena: a}
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
