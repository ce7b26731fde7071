// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
)

// Backend says what computes for an engine, and why that. People and metrics see it; nothing depends on it.
type Backend struct {
	Name string // "cpu", "vulkan", "cuda", ...
	// Device is what the device calls itself; "" for the CPU. Devices of a kind that share the work of one
	// model count in Devices.
	Device      string
	Devices     int
	MemoryBytes int64 // of all Devices; 0 for the CPU
	// Layers of AllLayers of the text model are on the device; both are 0 for an Encoder, which is there as a whole.
	Layers, AllLayers int
	Why               string // why this one, in words
	// Software says that the device is a driver that computes on the CPU, slower than the CPU's own back end.
	Software bool
}

// String is b in a line: "vulkan: NVIDIA H200, 139.8 GiB, 31 of 31 layers".
func (b Backend) String() string {
	if b.Device == "" {
		return b.Name
	}
	text := []string{b.Device}
	if b.Devices > 1 {
		text[0] = fmt.Sprintf("%d x %s", b.Devices, b.Device)
	}
	if b.MemoryBytes > 0 {
		text = append(text, fmt.Sprintf("%.1f GiB", float64(b.MemoryBytes)/(1<<30)))
	}
	if b.AllLayers > 0 {
		text = append(text, fmt.Sprintf("%d of %d layers", b.Layers, b.AllLayers))
	}
	return b.Name + ": " + strings.Join(text, ", ")
}
