// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	goimage "image"
	"image/png"
	"io"
	"net/http"

	"afterimage/internal/vllm/relay"
)

// Named is what an Encoder says of a picture.
type Named struct {
	Sent string // the name under which a gateway sends it
	Hash string // what the engine calls it
	Grid relay.Grid
}

// AskModel returns the first model of the worker at url.
func AskModel(ctx context.Context, client *http.Client, url string) (string, error) {
	body, err := fetch(ctx, client, http.MethodGet, url+"/v1/models", nil)
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("%.200s is no list of models", body)
	}
	return list.Data[0].ID, nil
}

// AskName has the Encoder at url encode a PNG file, as a gateway does, or without a name, and returns what it says of it.
// Nothing is pushed anywhere.
func AskName(ctx context.Context, client *http.Client, url, model string, file []byte, unnamed bool) (Named, error) {
	at := "data:image/png;base64," + base64.StdEncoding.EncodeToString(file)
	n := Named{Sent: nameOf([]byte(at))}
	part := map[string]any{"type": "image_url", "image_url": map[string]string{"url": at}}
	if !unnamed {
		part["uuid"] = n.Sent
	}
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": false, "messages": []any{map[string]any{"role": "user", "content": []any{part}}},
	})
	if err != nil {
		return n, err
	}
	answer, err := fetch(ctx, client, http.MethodPost, url+"/v1/chat/completions", body)
	if err != nil {
		return n, err
	}
	reports := reportsOf(answer)
	if len(reports) != 1 {
		return n, fmt.Errorf("it reports %d pictures of 1; an Encoder of a fleet with Encoders apart says ec_transfer_params: %.200s", len(reports), answer)
	}
	n.Hash = reports[0].name
	for _, m := range metadataOf(reports[0].raw) {
		if m.name == relay.MetadataName {
			n.Grid, _ = relay.ParseGrid(m.raw)
		}
	}
	return n, nil
}

// FreshPicture is a small PNG file that nobody has seen.
func FreshPicture() []byte {
	m := goimage.NewRGBA(goimage.Rect(0, 0, 56, 56))
	rand.Read(m.Pix)
	for i := 3; i < len(m.Pix); i += 4 {
		m.Pix[i] = 255
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m) // into memory
	return b.Bytes()
}

// fetch makes one call and returns its answer, which is an error unless its status is 200.
func fetch(ctx context.Context, client *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %.200s", resp.Status, answer)
	}
	return answer, err
}
