// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package llama

// cpuFeatures is empty: the arm64 libraries are built for the base instruction set.
func cpuFeatures() []cpuFeature { return nil }
