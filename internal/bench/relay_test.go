// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

// TestRelayWithoutVLLM: what cannot be measured is said of every size, and the check tells.
func TestRelayWithoutVLLM(t *testing.T) {
	rep, err := DefaultRelay().Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if met, checked, missing, _ := rep.counts(); met != 0 || checked != 0 || missing != 3 || rep.ExitCode() != 3 {
		t.Errorf("%d of %d met, %d not measured, exit code %d; want 3 not measured and 3", met, checked, missing, rep.ExitCode())
	}
	for _, r := range rep.Rows {
		if r.Peer != peerVLLM || r.NotMeasured == "" {
			t.Errorf("the row %+v does not say what is missing", r)
		}
	}
}
