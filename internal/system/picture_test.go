// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/client"
)

// picture returns a PNG that is equal for equal arguments.
func picture(t *testing.T, w, h int, seed uint8) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.RGBA{uint8(x*7) + seed, uint8(y*5) ^ seed, seed, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dataURL(file []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(file)
}

// text and img are content parts.
func text(s string) any { return map[string]any{"type": "text", "text": s} }

func img(file []byte) any {
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": dataURL(file)}}
}

func user(parts ...any) any { return map[string]any{"role": "user", "content": parts} }

// post sends a chat body and returns status, headers and the whole answer.
func (f *fleet) post(t *testing.T, fields map[string]any, messages ...any) (int, http.Header, string) {
	t.Helper()
	body := map[string]any{"messages": messages, "temperature": 0}
	for k, v := range fields {
		body[k] = v
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return f.postRaw(t, b)
}

func (f *fleet) postRaw(t *testing.T, body []byte) (int, http.Header, string) {
	t.Helper()
	resp, err := f.gateway.Client().Post(f.gateway.URL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(out)
}

// content returns the text of a completion, or fails.
func content(t *testing.T, status int, body string) string {
	t.Helper()
	var c struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil || status != 200 || len(c.Choices) != 1 {
		t.Fatalf("status %d: %s", status, body)
	}
	return c.Choices[0].Message.Content
}

// ask asks about pictures on a chosen Encoder ("" for any) and returns the answer with its trace.
func (f *fleet) ask(t *testing.T, encoder string, files ...[]byte) client.Answer {
	t.Helper()
	a, err := f.client.Ask(t.Context(), client.Question{Text: "what?", Images: files, Encoder: encoder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sources lists where the pictures of an answer came from, in prompt order.
func sources(a client.Answer) string {
	var s []string
	for _, it := range a.Items {
		s = append(s, string(it.Source))
	}
	return strings.Join(s, " ")
}

// question asks about one picture.
func question(file []byte) client.Question {
	return client.Question{Text: "what?", Images: [][]byte{file}}
}

// do sends a request to the gateway.
func (f *fleet) do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp := must[*http.Response](t)(f.gateway.Client().Do(req))
	defer resp.Body.Close()
	return resp.StatusCode, string(must[[]byte](t)(io.ReadAll(resp.Body)))
}

// readAll reads a request's body, after which its server notices when the caller leaves.
func readAll(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// mute is a ResponseWriter that says nothing.
type mute struct{ http.ResponseWriter }

func (m *mute) Header() http.Header         { return http.Header{} }
func (m *mute) Write(b []byte) (int, error) { return len(b), nil }
func (m *mute) WriteHeader(int)             {}
