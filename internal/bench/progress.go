// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"os"
)

// progress tells a person what a benchmark is doing. On a terminal it keeps to one line; elsewhere it
// writes one line per step.
type progress struct {
	w        io.Writer
	terminal bool
	current  string
}

// newProgress returns a progress to w; nil says nothing.
func newProgress(w io.Writer) *progress {
	if w == nil {
		return &progress{w: io.Discard}
	}
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		st, err := f.Stat()
		p.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// clearLine goes to the start of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// step begins a step.
func (p *progress) step(format string, args ...any) {
	p.current = fmt.Sprintf(format, args...)
	if p.terminal {
		fmt.Fprint(p.w, clearLine, p.current)
	} else {
		fmt.Fprintln(p.w, p.current)
	}
}

// at says how far the step has got; only a terminal shows it.
func (p *progress) at(i, n int) {
	if p.terminal {
		fmt.Fprintf(p.w, "%s%s: %d of %d", clearLine, p.current, i, n)
	}
}

// end makes room for the report.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, clearLine)
	}
}
