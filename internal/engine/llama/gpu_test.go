// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPickDevices(t *testing.T) {
	card := device{ptr: 1, kind: deviceGPU, description: "NVIDIA H200", memory: 10}
	other := device{ptr: 2, kind: deviceGPU, description: "NVIDIA L4", memory: 5}
	shared := device{ptr: 3, kind: deviceIntegrated, description: "AMD Radeon Graphics"}
	soft := device{ptr: 4, kind: deviceGPU, description: "llvmpipe (LLVM 15.0.6, 256 bits)"}
	f := func(gpu GPU, why string, found []device, want ...device) {
		t.Helper()
		use, reason := pick(found, gpu)
		if reason != why || len(use) != len(want) {
			t.Fatalf("%s of %v: got %v, %q; want %v, %q", gpu, found, use, reason, want, why)
		}
		for i := range want {
			if use[i] != want[i] {
				t.Errorf("%s of %v: device %d is %v, want %v", gpu, found, i, use[i], want[i])
			}
		}
	}
	f(GPUAuto, "no device", nil)
	f(GPUAuto, "", []device{shared, card}, card)
	f(GPUAuto, "", []device{shared}, shared)
	f(GPUAuto, "", []device{card, other, card}, card, card)
	f(GPUAuto, "only a driver in software", []device{soft})
	f(GPUAuto, "", []device{soft, shared}, shared)
	f(GPUVulkan, "", []device{soft}, soft)
	f(GPUAuto, "no device", []device{{kind: 0, description: "CPU"}, {kind: 3, description: "BLAS"}})
}

// What the CPU computes keeps its name whether back ends of GPUs lie beside it or not.
func TestIdentityOfTheCPULeavesGPUsOut(t *testing.T) {
	dir := fakeLibrary(t, t.TempDir())
	before, err := hashLibraries(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libggml-vulkan.so", "libggml-cuda.so", "libggml-hip.so.0"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("junk"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := hashLibraries(dir); err != nil || after != before {
		t.Errorf("got %s, %v; want %s", after, err, before)
	}
	writeFile(t, dir, "libggml-rpc.so")
	if after, err := hashLibraries(dir); err != nil || after == before {
		t.Errorf("another library changes nothing: %s, %v", after, err)
	}
}
