// SPDX-License-Identifier: Apache-2.0

package llama

import "golang.org/x/sys/cpu"

// cpuFeatures lists what the prebuilt libraries use without asking (x86-64-v3); on a processor
// without one of them the process would die of SIGILL.
func cpuFeatures() []cpuFeature {
	return []cpuFeature{
		{"AVX2", cpu.X86.HasAVX2},
		{"FMA", cpu.X86.HasFMA},
		{"F16C", cpu.X86.HasF16C},
		{"BMI2", cpu.X86.HasBMI2},
	}
}
