// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
)

// Question is one user turn: pictures, then text.
type Question struct {
	Model     string // "" asks for the only model
	Text      string
	Images    [][]byte // files as they are
	MaxTokens int      // 0 leaves it to the server
	// Temperature is sent as it is; 0 makes the answer repeatable.
	Temperature float64
	Seed        *int64
	Encoder     string // name or index of the Encoder to use; "" leaves it to routing
}

func (q Question) body() ([]byte, error) {
	var parts []any
	for i, img := range q.Images {
		if len(img) == 0 {
			return nil, fmt.Errorf("picture %d is empty", i)
		}
		url := DataURL(img)
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
	}
	parts = append(parts, map[string]string{"type": "text", "text": q.Text})
	body := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": parts}},
		"stream":   true, "stream_options": map[string]bool{"include_usage": true},
		"temperature": q.Temperature,
	}
	if q.Model != "" {
		body["model"] = q.Model
	}
	if q.MaxTokens > 0 {
		body["max_tokens"] = q.MaxTokens
	}
	if q.Seed != nil {
		body["seed"] = *q.Seed
	}
	return json.Marshal(body)
}
