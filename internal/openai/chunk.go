// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"errors"
	"net/http"
	"time"
)

// ContentTypeSSE is the content type of a streamed answer.
const ContentTypeSSE = "text/event-stream; charset=utf-8"

// doneFrame ends every stream, a failed one too.
const doneFrame = "data: [DONE]\n\n"

// AppendErrorFrame appends the end of a stream that failed after its 200 had gone out: one event with
// the error, which no client can take for a finished answer, and the end marker.
func AppendErrorFrame(dst []byte, err error) []byte {
	dst = AsError(err).AppendJSON(append(dst, "data: "...))
	return append(dst, "\n\n"+doneFrame...)
}

// ChunkWriter streams one answer: Start, any number of Text, then Finish or Fail. Each event is
// flushed as it is written. An error means that the client is gone; later calls return it again.
type ChunkWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	head    Head
	usage   bool
	timeout time.Duration

	prefix  []byte // what all chunks begin with
	buf     []byte // the event being written
	started bool
	err     error
}

// NewChunkWriter returns a writer of the answer that head names; with includeUsage it ends with a
// chunk of usage. A client that does not read is given up timeout after an event was written; 0
// waits for as long as the request's context.
func NewChunkWriter(w http.ResponseWriter, head Head, includeUsage bool, timeout time.Duration) *ChunkWriter {
	c := &ChunkWriter{w: w, rc: http.NewResponseController(w), head: head, usage: includeUsage, timeout: timeout}
	c.prefix = c.head.appendHead([]byte("data: "), "chat.completion.chunk")
	return c
}

// Start sends the header and the first chunk, which names the role.
func (c *ChunkWriter) Start() error {
	c.started = true
	c.w.Header().Set("Content-Type", ContentTypeSSE)
	c.w.WriteHeader(http.StatusOK)
	return c.send(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],` +
		`"prompt_token_ids":null,"prompt_text":null}`)
}

// Text sends the text that one or more tokens added; it may be empty.
func (c *ChunkWriter) Text(s string) error {
	c.delta(s)
	return c.send(`,"finish_reason":null,"token_ids":null}]}`)
}

// Finish sends the last text, how the answer ended, the usage if asked for, and the end marker.
func (c *ChunkWriter) Finish(s string, end End, u Usage) error {
	c.delta(s)
	c.buf = append(end.appendEnd(c.buf), `,"token_ids":null}]`...)
	if c.usage {
		if err := c.send("}"); err != nil {
			return err
		}
		c.buf = append(append(c.buf, c.prefix...), `],"usage":{`...)
		c.buf = append(u.append(c.buf), '}')
	}
	c.buf = append(c.buf, `,"system_fingerprint":`...)
	c.buf = appendStringOrNull(c.buf, c.head.Fingerprint)
	c.buf = append(c.buf, "}\n\n"...)
	c.buf = append(c.buf, doneFrame...)
	return c.last()
}

// Fail ends the answer with err: as a whole error response if nothing was sent, else in the stream.
func (c *ChunkWriter) Fail(err error) error {
	if !c.started {
		c.started = true
		WriteError(c.w, err)
		return c.err
	}
	c.buf = AppendErrorFrame(c.buf[:0], err)
	return c.last()
}

// delta begins a chunk that carries text.
func (c *ChunkWriter) delta(s string) {
	c.buf = append(append(c.buf[:0], c.prefix...), `{"index":0,"delta":{"content":`...)
	c.buf = append(AppendString(c.buf, s), `},"logprobs":null`...)
}

// send ends the chunk in buf, or one of tail alone, and writes it.
func (c *ChunkWriter) send(tail string) error {
	if len(c.buf) == 0 {
		c.buf = append(c.buf, c.prefix...)
	}
	c.buf = append(append(c.buf, tail...), "\n\n"...)
	return c.flush()
}

// last writes buf and lifts the deadline, which the connection's next request would inherit.
func (c *ChunkWriter) last() error {
	err := c.flush()
	if err == nil && c.timeout > 0 {
		_ = c.rc.SetWriteDeadline(time.Time{}) // it could be set, so it can be lifted
	}
	return err
}

// flush writes buf and pushes it out to the client.
func (c *ChunkWriter) flush() error {
	buf := c.buf
	c.buf = c.buf[:0]
	if c.err != nil {
		return c.err
	}
	if c.timeout > 0 {
		// A rolling deadline: the server's own would span the whole answer.
		err := c.rc.SetWriteDeadline(time.Now().Add(c.timeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			c.err = err
			return err
		}
	}
	if _, c.err = c.w.Write(buf); c.err == nil {
		c.err = c.rc.Flush()
	}
	return c.err
}
