// SPDX-License-Identifier: Apache-2.0

package llama

import "afterimage/internal/gguf"

// quantised says whether all matrices of a model are. The CPU kernels of plain types compute one column
// apart from several, in other steps of rounding; those of quantised types do not.
func quantised(f *gguf.File) bool {
	for _, t := range f.Tensors() {
		if len(t.Dims) < 2 || t.Dims[0] == 1 || t.Dims[1] == 1 {
			continue
		}
		switch t.Type.String() {
		case "F32", "F16", "BF16", "F64":
			return false
		}
	}
	return true
}
