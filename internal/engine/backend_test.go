// SPDX-License-Identifier: Apache-2.0

package engine

import "testing"

func TestBackendInALine(t *testing.T) {
	f := func(want string, b Backend) {
		t.Helper()
		if got := b.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f("cpu", Backend{Name: "cpu", Why: "no GPU"})
	f("vulkan: H200, 2.5 GiB, 31 of 31 layers", Backend{Name: "vulkan", Device: "H200", Devices: 1, MemoryBytes: 5 << 29, Layers: 31, AllLayers: 31})
	f("cuda: 2 x H200", Backend{Name: "cuda", Device: "H200", Devices: 2})
}
