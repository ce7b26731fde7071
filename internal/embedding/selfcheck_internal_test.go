// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"strings"
	"testing"
)

// K09: a build that names or lays out anything differently is found at start, and says what differs.
func TestSelfCheckFinds(t *testing.T) {
	for i := range selfCheckVectors {
		v := &selfCheckVectors[i]
		right := v.want
		v.want = "0" + right
		if err := SelfCheck(); err == nil || !strings.Contains(err.Error(), v.name) {
			t.Errorf("%s differs: got %v", v.name, err)
		}
		v.want = right
	}
}
