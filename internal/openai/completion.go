// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
)

// Finish reasons.
const (
	FinishStop   = "stop"   // end of generation, or a stop string
	FinishLength = "length" // the limit of tokens or of the context
)

// Head names an answer; all its chunks carry it.
type Head struct {
	ID          string // CompletionID of the request
	Created     int64  // unix seconds
	Model       string
	Fingerprint string // system_fingerprint; "" is null
	// Text says that it is an answer of the completions API, not of chats.
	Text bool
}

// CompletionID returns the id of the answer to a request: "chatcmpl-" and the id that the client
// gave the request, or 16 random hex digits if it gave none.
func CompletionID(requestID string) string { return "chatcmpl-" + named(requestID) }

// TextID is CompletionID for the completions API: "cmpl-" and the request's id.
func TextID(requestID string) string { return "cmpl-" + named(requestID) }

func named(requestID string) string {
	if requestID == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		requestID = hex.EncodeToString(b[:])
	}
	return requestID
}

// Usage counts tokens. Positions that images take in the prompt count as prompt tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int // of all choices
	CachedTokens     int // of PromptTokens, those that did not have to be computed
}

// End says how an answer ended.
type End struct {
	Reason string // a Finish constant
	// Stop is the stop string that was found; "" is null.
	Stop string
}

// Choice is one answer to a request.
type Choice struct {
	Content  string
	Logprobs []TokenLogprob // nil is null
	End
}

// Completion is what is sent in one piece.
type Completion struct {
	Head
	Choices []Choice
	Usage   Usage
}

// AppendJSON appends the body.
func (c *Completion) AppendJSON(dst []byte) []byte {
	dst = c.appendHead(dst, "chat.completion")
	for i := range c.Choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		if c.Text {
			dst = c.Choices[i].appendText(dst, i)
		} else {
			dst = c.Choices[i].append(dst, i)
		}
	}
	dst = append(dst, `],"service_tier":null,"system_fingerprint":`...)
	dst = appendStringOrNull(dst, c.Fingerprint)
	dst = c.Usage.append(append(dst, `,"usage":{`...))
	dst = append(dst, `,"prompt_tokens_details":`...)
	if c.Usage.CachedTokens > 0 {
		dst = c.Usage.appendDetails(dst)
	} else {
		dst = append(dst, "null"...)
	}
	if c.Text {
		return append(dst, `},"kv_transfer_params":null}`...)
	}
	return append(dst, `,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,`+
		`"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
}

func (c *Choice) append(dst []byte, index int) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = AppendString(append(dst, `,"message":{"role":"assistant","content":`...), c.Content)
	dst = append(dst, `,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":`...)
	dst = c.appendEnd(appendLogprobs(dst, c.Logprobs))
	return append(dst, `,"token_ids":null,"routed_experts":null}`...)
}

// appendText is append for the completions API.
func (c *Choice) appendText(dst []byte, index int) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = AppendString(append(dst, `,"text":`...), c.Content)
	dst, _ = appendTextLogprobs(append(dst, `,"logprobs":`...), c.Logprobs, 0)
	return append(c.appendEnd(dst), `,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}`...)
}

// Write writes the whole response. Nothing may have been written to w.
func (c *Completion) Write(w http.ResponseWriter) { writeJSON(w, http.StatusOK, c.AppendJSON(nil)) }

// appendHead opens the object, which is of that kind unless it is text, and its list of choices.
func (h *Head) appendHead(dst []byte, object string) []byte {
	if h.Text {
		object = "text_completion"
	}
	dst = AppendString(append(dst, `{"id":`...), h.ID)
	dst = AppendString(append(dst, `,"object":`...), object)
	dst = strconv.AppendInt(append(dst, `,"created":`...), h.Created, 10)
	dst = AppendString(append(dst, `,"model":`...), h.Model)
	return append(dst, `,"choices":[`...)
}

// appendEnd appends the two reasons; stop_reason is null unless a stop string was found.
func (e *End) appendEnd(dst []byte) []byte {
	dst = AppendString(append(dst, `,"finish_reason":`...), e.Reason)
	return appendStringOrNull(append(dst, `,"stop_reason":`...), e.Stop)
}

// append appends the counts without the braces.
func (u Usage) append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `"prompt_tokens":`...), int64(u.PromptTokens), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(u.PromptTokens+u.CompletionTokens), 10)
	return strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(u.CompletionTokens), 10)
}

// appendDetails appends what is known of the prompt's tokens.
func (u Usage) appendDetails(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"cached_tokens":`...), int64(u.CachedTokens), 10)
	return append(dst, '}')
}
