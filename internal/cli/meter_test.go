// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		m := newMeter(&b, "export")
		for i := range int64(100) { // ten seconds
			time.Sleep(100 * time.Millisecond)
			m.at(i, 200, "x")
		}
		m.end()
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if len(lines) != 2 || lines[1] != "export [###########-------------] 99 of 200, 10s left, x" {
			t.Errorf("a log shows %q", lines)
		}
		b.Reset()
		m = newMeter(&b, "import")
		m.terminal, m.every = true, meterTerminal
		for range 3 {
			time.Sleep(time.Second)
			m.at(7, 0, "")
		}
		m.end()
		if got, want := b.String(), strings.Repeat(clearLine+"import: 7", 3)+clearLine; got != want {
			t.Errorf("a terminal shows %q", got)
		}
	})
}
