// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"afterimage/internal/control"
)

// DataURL returns file as a data: URL.
func DataURL(file []byte) string {
	return "data:" + http.DetectContentType(file) + ";base64," + base64.StdEncoding.EncodeToString(file)
}

// Warm has the embeddings of pictures brought into the Store. urls are data:, http: or https: URLs. Items
// fail alone; the error is about the whole call.
func (c *Client) Warm(ctx context.Context, model string, urls []string) ([]control.WarmItem, error) {
	body := control.WarmRequest{Model: model}
	for _, u := range urls {
		body.Images = append(body.Images, control.WarmImage{URL: u})
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+control.PathWarm, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	c.authorize(req)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from %s: %w", c.Base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, readError(resp)
	}
	var got control.WarmResponse
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", c.Base, err)
	}
	if len(got.Items) != len(urls) {
		return nil, fmt.Errorf("%s answered %d items of %d", c.Base, len(got.Items), len(urls))
	}
	return got.Items, nil
}
