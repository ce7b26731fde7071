// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package llama

// cpuFeatures is empty: the arm64 libraries keep to the base instruction set (ARMv8.0).
func cpuFeatures() []cpuFeature { return nil }
