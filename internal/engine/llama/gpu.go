// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ebitengine/purego"

	"afterimage/internal/engine"
)

// GPU says what may compute besides the CPU.
type GPU string

// The values of GPU.
const (
	GPUOff    GPU = "off"    // the CPU alone
	GPUAuto   GPU = "auto"   // a hardware device if a back end of the folder finds one, else the CPU
	GPUVulkan GPU = "vulkan" // the first device that Vulkan lists, which may be a driver in software
)

// GPUs lists the values of GPU.
func GPUs() []string { return []string{string(GPUAuto), string(GPUVulkan), string(GPUOff)} }

const backendVulkan = "vulkan"

// gpuBackends are the back ends that a folder may hold besides the CPU's, the preferred ones first. The package
// of make deps has Vulkan; the others come with builds of the user's own.
var gpuBackends = []string{"cuda", "hip", "musa", "sycl", backendVulkan}

func backendFile(name string) string { return "libggml-" + name + ".so" }

// isGPULibrary says whether a shared object is one of gpuBackends, under any version of its name.
func isGPULibrary(file string) bool {
	return slices.ContainsFunc(gpuBackends, func(name string) bool { return strings.HasPrefix(file, backendFile(name)) })
}

// Types of devices, as ggml_backend_dev_type numbers them.
const (
	deviceGPU        = 1
	deviceIntegrated = 2
)

// device is one that a back end found.
type device struct {
	ptr         uintptr
	kind        int32
	name        string // "Vulkan0"
	description string // "NVIDIA H200"
	memory      int64
}

// softwareDrivers begin the names of Vulkan drivers that compute on the CPU.
var softwareDrivers = []string{"llvmpipe", "lavapipe", "swiftshader", "softpipe"}

func (d device) software() bool {
	return slices.ContainsFunc(softwareDrivers, func(s string) bool { return strings.Contains(strings.ToLower(d.description), s) })
}

// envVulkanDevices has Vulkan's back end take the devices of these numbers, whatever they are.
const envVulkanDevices = "GGML_VK_VISIBLE_DEVICES"

// openGPU loads the back ends that gpu allows, and decides what computes. It returns the file whose bits
// decide, "" where those of the CPU do.
func (l *Library) openGPU(gpu GPU) (file string, err error) {
	l.backend = engine.Backend{Name: "cpu"}
	var tried []string
	for _, name := range gpuBackends {
		path := filepath.Join(l.dir, backendFile(name))
		if _, err := os.Stat(path); err != nil || gpu == GPUOff || gpu == GPUVulkan && name != backendVulkan {
			continue
		}
		why := l.loadGPU(name, path, gpu)
		if why == "" {
			return path, nil
		}
		tried = append(tried, why)
	}
	switch {
	case gpu == GPUOff:
		l.backend.Why = "the GPU is turned off"
	case gpu == GPUVulkan && len(tried) == 0:
		return "", fmt.Errorf("llama: %s holds no %s; run `make deps`, or set engine.gpu to %s", l.dir, backendFile(backendVulkan), GPUOff)
	case gpu == GPUVulkan:
		return "", fmt.Errorf("llama: no Vulkan device: %s; install a driver of your GPU, or set engine.gpu to %s", tried[0], GPUOff)
	case len(tried) == 0:
		l.backend.Why = "there is no back end of a GPU in " + l.dir
	default:
		l.backend.Why = strings.Join(tried, "; ")
	}
	return "", nil
}

// loadGPU loads one back end and takes its devices. It returns why it cannot, "" if it can.
func (l *Library) loadGPU(name, path string, gpu GPU) (why string) {
	if name == backendVulkan {
		// Asked for here, so that a host without Vulkan does not look like one with a broken back end.
		if _, err := purego.Dlopen("libvulkan.so.1", purego.RTLD_LAZY|purego.RTLD_GLOBAL); err != nil {
			return "libvulkan.so.1, the Vulkan loader, is not installed"
		}
		if _, set := os.LookupEnv(envVulkanDevices); !set && gpu == GPUVulkan {
			os.Setenv(envVulkanDevices, "0") // else a driver in software is passed over
		}
	}
	before, mark := l.devices(), l.log.mark()
	if l.c.backendLoad(path) == 0 {
		return fmt.Sprintf("%s did not load: %s", filepath.Base(path), l.log.explain(mark))
	}
	found := l.devices()[len(before):]
	use, why := pick(found, gpu)
	if why != "" {
		return name + ": " + why
	}
	l.use = use
	l.backend = engine.Backend{Name: name, Device: use[0].description, Devices: len(use), Why: fmt.Sprintf("the first device that %s lists", name)}
	for _, d := range use {
		l.backend.MemoryBytes += d.memory
	}
	if l.backend.Software = use[0].software(); l.backend.Software {
		l.backend.Why = "engine.gpu asks for it; it is a driver in software, slower than the CPU back end"
	}
	return ""
}

// pick chooses among the devices of one back end: cards, else what shares memory with the CPU. A driver in
// software is taken only where it was asked for.
func pick(found []device, gpu GPU) (use []device, why string) {
	software := 0
	for _, kind := range []int32{deviceGPU, deviceIntegrated} {
		for _, d := range found {
			switch {
			case d.kind != kind:
			case d.software() && gpu != GPUVulkan:
				software++
			case len(use) == 0 || use[0].description == d.description && use[0].kind == kind:
				use = append(use, d) // cards of a kind share the work
			}
		}
		if len(use) > 0 {
			return use, ""
		}
	}
	if software > 0 {
		return nil, "only a driver in software"
	}
	return nil, "no device"
}

// devices lists what all loaded back ends found, the CPU included.
func (l *Library) devices() []device {
	out := make([]device, l.c.deviceCount())
	for i := range out {
		ptr := l.c.deviceGet(uint64(i))
		d := device{ptr: ptr, kind: l.c.deviceType(ptr), name: goString(l.c.deviceName(ptr)), description: goString(l.c.deviceAbout(ptr))}
		mem := new([2]uint64) // free and total, on the heap
		l.c.deviceMemory(ptr, &mem[0], &mem[1])
		d.memory = int64(mem[1])
		out[i] = d
	}
	return out
}

// Backend says what computes, and why.
func (l *Library) Backend() engine.Backend { return l.backend }

// onGPU says whether anything but the CPU computes.
func (l *Library) onGPU() bool { return len(l.use) > 0 }
