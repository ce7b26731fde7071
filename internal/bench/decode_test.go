// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
)

// TestDecode runs the whole benchmark on a modelled device that takes no time.
func TestDecode(t *testing.T) {
	d := Decode{Rounds: 2, Concurrent: 3, Prompt: 20, Answer: 8, StepTokens: 16}
	open := func(context int) func(int) (engine.Text, error) {
		return func(slots int) (engine.Text, error) {
			return device.NewText(device.TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: context, Slots: slots})
		}
	}
	d.Open = open(64)
	report, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(report.Note, "modelled") {
		t.Errorf("note %q does not say that the device is modelled", report.Note)
	}
	targets := 0
	for _, r := range report.Rows {
		if r.Target > 0 {
			targets++
		}
		if strings.Contains(r.Metric, "other bits") && (r.Value != 0 || r.Case != "in company, of 1548 logits") {
			t.Errorf("%s, %s: %v", r.Case, r.Metric, r.Value)
		}
	}
	if targets != 3 {
		t.Errorf("%d rows with targets, want 3", targets)
	}
	d.Open = open(20)
	if _, err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "context of 20") {
		t.Errorf("a context that is too small: %v", err)
	}
}
