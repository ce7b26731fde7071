// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Logprob is a token and its log probability.
type Logprob struct {
	Token   []byte  // its bytes, which may be part of a character
	Logprob float64 // of the model's own distribution, before any sampling option
}

// TokenLogprob is a token of an answer, with the likeliest ones in its place.
type TokenLogprob struct {
	Logprob
	Top []Logprob
}

// appendLogprobs appends the value of logprobs: null for nil.
func appendLogprobs(dst []byte, all []TokenLogprob) []byte {
	if all == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i, t := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(t.append(dst), `,"top_logprobs":[`...)
		for k, top := range t.Top {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(top.append(dst), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// appendTextLogprobs appends the value of logprobs of the completions API, for tokens that begin so many
// characters into the answer. It returns where the next one begins.
func appendTextLogprobs(dst []byte, all []TokenLogprob, offset int) ([]byte, int) {
	if all == nil {
		return append(dst, "null"...), offset
	}
	list := func(name string, each func(t *TokenLogprob)) {
		dst = append(append(dst, name...), '[')
		for i := range all {
			if i > 0 {
				dst = append(dst, ',')
			}
			each(&all[i])
		}
		dst = append(dst, ']')
	}
	list(`{"text_offset":`, func(t *TokenLogprob) {
		dst = strconv.AppendInt(dst, int64(offset), 10)
		offset += utf8.RuneCount(t.Token)
	})
	list(`,"token_logprobs":`, func(t *TokenLogprob) { dst = t.appendValue(dst) })
	list(`,"tokens":`, func(t *TokenLogprob) { dst = AppendString(dst, string(t.Token)) })
	list(`,"top_logprobs":`, func(t *TokenLogprob) { dst = t.appendTop(dst) })
	return append(dst, '}'), offset
}

// appendTop appends the likeliest tokens as an object, the chosen one among them. Of tokens that read alike, it
// has the first.
func (t *TokenLogprob) appendTop(dst []byte) []byte {
	dst = append(dst, '{')
	var seen []string
	for i, l := range append([]Logprob{t.Logprob}, t.Top...) {
		name := strings.ToValidUTF8(string(l.Token), "\uFFFD")
		if slices.Contains(seen, name) {
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		seen = append(seen, name)
		dst = l.appendValue(append(AppendString(dst, name), ':'))
	}
	return append(dst, '}')
}

// appendValue appends the number. vLLM has none smaller than -9999.
func (l Logprob) appendValue(dst []byte) []byte {
	return strconv.AppendFloat(dst, max(l.Logprob, -9999), 'g', -1, 64)
}

// append appends an object without its closing brace.
func (l Logprob) append(dst []byte) []byte {
	dst = AppendString(append(dst, `{"token":`...), string(l.Token))
	dst = l.appendValue(append(dst, `,"logprob":`...))
	dst = append(dst, `,"bytes":[`...)
	for i, b := range l.Token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}
