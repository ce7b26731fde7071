// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine describes what a benchmark ran on, in one line.
func Machine() string {
	b, _ := os.ReadFile("/proc/cpuinfo") // without it the model is unknown
	return fmt.Sprintf("%s, %d cores, %s %s/%s", cpuModel(string(b)), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// cpuModel finds the name of the CPU in /proc/cpuinfo; arm64 kernels give none.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "CPU of unknown model"
}
