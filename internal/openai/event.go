// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"fmt"
	"io"
)

// DefaultMaxEventBytes bounds one event of a stream. Answers with log probabilities and token ids
// reach some hundred KiB.
const DefaultMaxEventBytes = 8 << 20

// EventTooLargeError says that an upstream sent an event beyond the limit.
type EventTooLargeError struct{ Limit int }

// Error names the limit.
func (e *EventTooLargeError) Error() string {
	return fmt.Sprintf("an event of the stream exceeds %d bytes", e.Limit)
}

// Event is one event of a stream, or a comment, or a blank line: everything up to and including a
// blank line.
type Event struct {
	// Raw is the event byte for byte, its blank line included. It is valid until the next call of
	// Next.
	Raw []byte
	// Done says that this is the end marker [DONE].
	Done bool
	// Finished says that a choice carries a finish_reason: without one, and without Done, a stream
	// that ends was cut off.
	Finished bool
	// Failed says that the event carries an error in the place of a chunk.
	Failed bool
}

// EventReader splits a stream of server-sent events into whole events without changing a byte.
// Lines may end in LF, CRLF or CR, and arrive in pieces of any size.
type EventReader struct {
	r    io.Reader
	max  int
	err  error // of r; told when the whole events before it are used up
	buf  []byte
	from int // start of the event being read
	line int // start of its last line
	seen int // no line end in buf[line:seen]
	end  int // bytes read
}

// NewEventReader returns a reader of r's events of at most maxBytes each.
func NewEventReader(r io.Reader, maxBytes int) *EventReader {
	return &EventReader{r: r, max: maxBytes}
}

// Next returns the next event. It fails with io.EOF after the last one, with io.ErrUnexpectedEOF if
// the stream ends within an event (which is not returned: half an event must not be relayed), with
// *EventTooLargeError, or with the error of the reader.
func (r *EventReader) Next() (Event, error) {
	for empty := 0; ; {
		if stop := r.scan(); stop > 0 {
			raw := r.buf[r.from:stop]
			if len(raw) > r.max {
				return Event{}, &EventTooLargeError{Limit: r.max}
			}
			r.from = stop
			return look(raw), nil
		}
		switch {
		case r.end-r.from > r.max:
			return Event{}, &EventTooLargeError{Limit: r.max}
		case r.err == io.EOF && r.end > r.from:
			return Event{}, io.ErrUnexpectedEOF
		case r.err != nil:
			return Event{}, r.err
		}
		if n := r.fill(); n > 0 {
			empty = 0
		} else if empty++; empty == 100 && r.err == nil {
			r.err = io.ErrNoProgress
		}
	}
}

// scan passes whole lines and returns the end of the event, 0 if more bytes are needed.
func (r *EventReader) scan() int {
	for {
		i := lineEnd(r.buf[r.seen:r.end])
		if i < 0 {
			r.seen = r.end
			return 0
		}
		at := r.seen + i
		next := at + 1
		if r.buf[at] == '\r' {
			if next == r.end && r.err == nil {
				r.seen = at // the LF of a CRLF may follow
				return 0
			}
			if next < r.end && r.buf[next] == '\n' {
				next++
			}
		}
		blank := at == r.line
		r.line, r.seen = next, next
		if blank {
			return next
		}
	}
}

// lineEnd returns the index of the first CR or LF, -1 if there is none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill reads once, after making room: it drops events that were returned, then doubles the buffer.
func (r *EventReader) fill() int {
	const first = 2 << 10
	if r.end == len(r.buf) {
		into := r.buf
		if r.from == 0 {
			into = make([]byte, max(first, 2*len(r.buf)))
		}
		r.end = copy(into, r.buf[r.from:r.end])
		r.line, r.seen, r.from = r.line-r.from, r.seen-r.from, 0
		r.buf = into
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.end += n
	r.err = err
	return n
}

// Data returns the event's payload: its data lines, joined by LF. A single line is a slice of Raw.
func (e Event) Data() []byte {
	var out []byte
	lines := 0
	for rest := e.Raw; len(rest) > 0; {
		line := rest
		if i := lineEnd(rest); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if lines++; lines == 1 {
			out = value[:len(value):len(value)]
			continue
		}
		out = append(append(out, '\n'), value...)
	}
	return out
}

// The keys that look searches for.
var (
	finishKey = []byte(`"finish_reason"`)
	errorKey  = []byte(`"error"`)
)

// look tells what kind of event raw is without parsing its JSON. In JSON, a quote within a string is
// escaped, so that a key in quotes followed by a colon is a key wherever it stands.
func look(raw []byte) Event {
	e := Event{Raw: raw}
	data := e.Data()
	if e.Done = string(bytes.TrimSpace(data)) == "[DONE]"; e.Done {
		return e
	}
	for rest := data; !e.Finished; {
		i := bytes.Index(rest, finishKey)
		if i < 0 {
			break
		}
		rest = rest[i+len(finishKey):]
		if value, ok := afterColon(rest); ok && len(value) > 0 && value[0] == '"' {
			e.Finished = true
		}
	}
	if body, ok := bytes.CutPrefix(bytes.TrimLeft(data, " "), []byte("{")); ok {
		rest, isError := bytes.CutPrefix(bytes.TrimLeft(body, " "), errorKey)
		_, colon := afterColon(rest)
		e.Failed = isError && colon
	}
	return e
}

// afterColon returns what follows a colon, white space skipped.
func afterColon(b []byte) ([]byte, bool) {
	b, ok := bytes.CutPrefix(bytes.TrimLeft(b, " \t"), []byte(":"))
	return bytes.TrimLeft(b, " \t"), ok
}
