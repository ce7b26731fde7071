// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How often a meter writes: on a terminal as often as an eye follows, elsewhere as a log bears.
const (
	meterTerminal = 100 * time.Millisecond
	meterLog      = 5 * time.Second
)

// meter shows how far long work has come: one line that is drawn again on a terminal, and elsewhere a
// line now and then. It is for one goroutine.
type meter struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	what     string // "export"
	begun    time.Time
	shown    time.Time
}

// newMeter returns a meter to w.
func newMeter(w io.Writer, what string) *meter {
	now := time.Now()
	m := &meter{w: w, what: what, every: meterLog, begun: now, shown: now}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		m.terminal, m.every = true, meterTerminal
	}
	return m
}

// isTerminal says whether a person may be there.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// clearLine goes to the start of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// at says that done of total is done; a total of 0 is not known. note stands behind.
func (m *meter) at(done, total int64, note string) {
	now := time.Now()
	if now.Sub(m.shown) < m.every {
		return
	}
	m.shown = now
	line := fmt.Sprintf("%s: %d", m.what, done)
	if total > 0 {
		const width = 24
		filled := int(min(done, total) * width / total)
		bar := strings.Repeat("#", filled) + strings.Repeat("-", width-filled)
		left := time.Duration(float64(now.Sub(m.begun)) * float64(max(total-done, 0)) / float64(max(done, 1)))
		line = fmt.Sprintf("%s [%s] %d of %d, %v left", m.what, bar, done, total, left.Round(time.Second))
	}
	if note != "" {
		line += ", " + note
	}
	if m.terminal {
		fmt.Fprint(m.w, clearLine, line)
	} else {
		fmt.Fprintln(m.w, line)
	}
}

// end makes room for what is printed next.
func (m *meter) end() {
	if m.terminal {
		fmt.Fprint(m.w, clearLine)
	}
}
