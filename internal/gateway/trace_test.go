// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/control"
)

// An answer begins when it is seen to, or when its worker says that it did: not before the stages that led to it, nor
// later than now, whatever the worker's clock says.
func TestFirstByte(t *testing.T) {
	f := func(firstToken string, want float64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			tr := newTraces(1).begin("t", "r", "")
			time.Sleep(40 * time.Millisecond)
			tr.stage("delivered")
			sent := 30.0
			time.Sleep(60 * time.Millisecond)
			tr.firstByte(sent, firstToken)
			if got := tr.copy().Stages[1]; got != (control.TraceStage{Name: "prefill", MS: want}) {
				t.Errorf("first token %q: got %+v, want %v", firstToken, got, want)
			}
		})
	}
	f("", 100)
	f("25", 55)
	f("5", 40)
	f("500", 100)
	f("-1", 100)
	f("NaN", 100)
	f("soon", 100)
}
