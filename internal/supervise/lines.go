// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

// The tail of a child's output that is kept for error messages, and the longest line that is kept in
// one piece.
const (
	tailLines = 12
	lineBytes = 16 << 10
)

// sink passes whole lines of several children on to one writer, so that they do not mix.
type sink struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (s *sink) line(prefix string, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A log that cannot be written must not stop the child that writes it.
	_, _ = s.w.Write(append([]byte(prefix), line...))
}

// lineWriter is the output of one child: it cuts the stream into lines, passes them on and keeps the
// last ones.
type lineWriter struct {
	sink   *sink
	prefix string
	noise  []string // parts of lines that are dropped

	mu   sync.Mutex // guards the fields below
	part []byte
	tail []string
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.part = append(l.part, p...)
			if len(l.part) > lineBytes {
				l.flushLocked()
			}
			break
		}
		l.part = append(l.part, p[:i]...)
		l.flushLocked()
		p = p[i+1:]
	}
	return n, nil
}

// Flush passes on a last line without an end.
func (l *lineWriter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.flushLocked()
	}
}

func (l *lineWriter) flushLocked() {
	defer func() { l.part = l.part[:0] }()
	if slices.ContainsFunc(l.noise, func(s string) bool { return bytes.Contains(l.part, []byte(s)) }) {
		return
	}
	l.tail = append(l.tail, string(l.part))
	if len(l.tail) > tailLines {
		l.tail = append(l.tail[:0], l.tail[1:]...)
	}
	l.sink.line(l.prefix, append(l.part, '\n'))
}

// Tail returns the last lines, indented for an error message.
func (l *lineWriter) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tail) == 0 {
		return ""
	}
	return "\n    " + strings.Join(l.tail, "\n    ")
}

// Last returns the last line that is not blank.
func (l *lineWriter) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.tail) - 1; i >= 0; i-- {
		if s := strings.TrimSpace(l.tail[i]); s != "" {
			return s
		}
	}
	return ""
}
