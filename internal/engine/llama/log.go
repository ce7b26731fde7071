// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"unsafe"
)

// Levels of ggml's log callback.
const (
	ggmlWarn     = 3
	ggmlError    = 4
	ggmlContinue = 5
)

// keptErrors is how many error lines stay for explain. A refused model file logs two to four.
const keptErrors = 16

// nativeLog receives the library's log lines. It passes them on to slog and keeps the latest error
// lines, since native functions answer NULL or a number and put the reason in the log.
type nativeLog struct {
	mu      sync.Mutex // guards the fields below
	partial strings.Builder
	level   int32
	errors  []string
	count   int // error lines ever seen
}

// line takes one call of the callback: a line, or a part of one.
func (l *nativeLog) line(level int32, text string) {
	l.mu.Lock()
	if level == ggmlContinue {
		level = l.level
	}
	l.level = level
	l.partial.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		l.mu.Unlock()
		return
	}
	whole := strings.TrimSpace(l.partial.String())
	l.partial.Reset()
	if level == ggmlError && whole != "" {
		l.errors = append(l.errors, whole)
		l.errors = l.errors[max(0, len(l.errors)-keptErrors):]
		l.count++
	}
	l.mu.Unlock()
	if whole != "" {
		slog.Log(context.Background(), slogLevel(level), whole, "from", "llama.cpp")
	}
}

// slogLevel ranks native lines one below their name: whatever matters comes back as a Go error, and
// the library warns of things that are as intended.
func slogLevel(level int32) slog.Level {
	switch level {
	case ggmlError:
		return slog.LevelWarn
	case ggmlWarn:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// mark returns a point in the log for explain.
func (l *nativeLog) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// explain returns the error lines since mark in one line, or a fallback when there are none. Lines of
// a call that failed at the same time on another thread may be among them.
func (l *nativeLog) explain(mark int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.count-mark, len(l.errors))
	if n <= 0 {
		return "the library gives no reason"
	}
	return strings.Join(l.errors[len(l.errors)-n:], "; ")
}

// goString copies a C string.
func goString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// cString returns s with a final NUL. The result lives on the Go heap.
func cString(s string) []byte { return append([]byte(s), 0) }
