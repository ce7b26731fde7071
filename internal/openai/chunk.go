// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"errors"
	"net/http"
	"strconv"
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

// ChunkWriter streams an answer: Start, any number of Text and End, then Finish or Fail. Each event is
// flushed as it is written. An error means that the client is gone; later calls return it again.
type ChunkWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	head    Head
	usage   bool
	timeout time.Duration

	prefix  []byte // what all chunks begin with
	offsets []int  // characters of each choice that had log probabilities; of text
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

// Start sends the header and, for each of n choices of a chat, the chunk that names the role.
func (c *ChunkWriter) Start(n int) error {
	c.started = true
	c.w.Header().Set("Content-Type", ContentTypeSSE)
	c.w.WriteHeader(http.StatusOK)
	c.offsets = make([]int, n)
	for i := range n {
		if c.head.Text {
			break
		}
		c.buf = append(c.buf, c.prefix...)
		c.buf = strconv.AppendInt(append(c.buf, `{"index":`...), int64(i), 10)
		c.buf = append(c.buf, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],`+
			`"prompt_token_ids":null,"prompt_text":null}`+"\n\n"...)
	}
	return c.flush()
}

// Text sends what one or more tokens add to a choice; s may be empty, and logprobs nil.
func (c *ChunkWriter) Text(choice int, s string, logprobs []TokenLogprob) error {
	c.delta(choice, s, logprobs)
	return c.send(`,"finish_reason":null,"token_ids":null}]}`)
}

// End sends the last text of a choice, other than the last to end, and how it ended.
func (c *ChunkWriter) End(choice int, s string, logprobs []TokenLogprob, end End) error {
	c.delta(choice, s, logprobs)
	c.buf = end.appendEnd(c.buf)
	return c.send(`,"token_ids":null}]}`)
}

// Finish is End for the last choice that ends. The usage, if it was asked for, and the end marker follow.
func (c *ChunkWriter) Finish(choice int, s string, logprobs []TokenLogprob, end End, u Usage) error {
	c.delta(choice, s, logprobs)
	c.buf = append(end.appendEnd(c.buf), `,"token_ids":null}]`...)
	if c.usage {
		if err := c.send("}"); err != nil {
			return err
		}
		c.buf = append(append(c.buf, c.prefix...), `],"usage":{`...)
		c.buf = u.append(c.buf)
		if u.CachedTokens > 0 {
			c.buf = u.appendDetails(append(c.buf, `,"prompt_tokens_details":`...))
		}
		c.buf = append(c.buf, '}')
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
func (c *ChunkWriter) delta(choice int, s string, logprobs []TokenLogprob) {
	c.buf = append(c.buf[:0], c.prefix...)
	c.buf = strconv.AppendInt(append(c.buf, `{"index":`...), int64(choice), 10)
	if c.head.Text {
		c.buf = AppendString(append(c.buf, `,"text":`...), s)
		c.buf, c.offsets[choice] = appendTextLogprobs(append(c.buf, `,"logprobs":`...), logprobs, c.offsets[choice])
		return
	}
	c.buf = AppendString(append(c.buf, `,"delta":{"content":`...), s)
	c.buf = appendLogprobs(append(c.buf, `},"logprobs":`...), logprobs)
}

// send ends the chunk in buf and writes it.
func (c *ChunkWriter) send(tail string) error {
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
