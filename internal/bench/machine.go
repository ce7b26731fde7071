// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// machineLoad returns how many tasks wanted to run at a time, over the last minute; 0 if it is not known.
func machineLoad() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// processCPU returns the CPU time of this process, all threads together.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
