// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// chatRequest is a streamed question about pictures.
type chatRequest struct {
	model     string
	opening   string   // text before the pictures
	images    [][]byte // data URLs
	text      string   // text after the pictures
	maxTokens int
}

// body returns the request's body, which reads the pictures where they lie, and its length.
func (c *chatRequest) body() (io.Reader, int64) {
	parts := []io.Reader{}
	n := int64(0)
	add := func(b []byte) {
		parts = append(parts, bytes.NewReader(b))
		n += int64(len(b))
	}
	add(fmt.Appendf(nil, `{"model":%s,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"max_tokens":%d,`+
		`"messages":[{"role":"user","content":[{"type":"text","text":%s}`, quoted(c.model), c.maxTokens, quoted(c.opening)))
	for _, url := range c.images {
		add([]byte(`,{"type":"image_url","image_url":{"url":"`))
		add(url)
		add([]byte(`"}}`))
	}
	add(fmt.Appendf(nil, `,{"type":"text","text":%s}]}]}`, quoted(c.text)))
	return io.MultiReader(parts...), n
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string has a JSON form
	return b
}

// words returns n bytes of text.
func words(n int) string {
	const some = "what do these pictures have in common, and in which of them would you rather be today? "
	return strings.Repeat(some, n/len(some)+1)[:n]
}
