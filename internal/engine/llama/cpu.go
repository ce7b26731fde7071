// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"strings"
)

// cpuFeature is an instruction set extension and whether this processor has it.
type cpuFeature struct {
	name    string
	present bool
}

// CheckCPU says what this processor lacks to run the libraries, nil if nothing. Loading them checks it too.
func CheckCPU() error { return checkCPU(cpuFeatures()) }

// checkCPU refuses a processor that cannot run the libraries. It runs before anything is loaded.
func checkCPU(features []cpuFeature) error {
	var missing []string
	for _, f := range features {
		if !f.present {
			missing = append(missing, f.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("llama: this processor lacks %s, which the prebuilt libraries need (any x86-64 since about 2013 has it; check the virtual machine's CPU model); the `device` engine runs without it",
			strings.Join(missing, ", "))
	}
	return nil
}
