// SPDX-License-Identifier: Apache-2.0

package openai

import "strconv"

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

// append appends an object without its closing brace. vLLM has no smaller number than -9999.
func (l Logprob) append(dst []byte) []byte {
	dst = AppendString(append(dst, `{"token":`...), string(l.Token))
	dst = strconv.AppendFloat(append(dst, `,"logprob":`...), max(l.Logprob, -9999), 'g', -1, 64)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range l.Token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}
