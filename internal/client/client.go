// SPDX-License-Identifier: Apache-2.0

// Package client is the user's side of the API: it asks a gateway about pictures as any OpenAI client
// would, and reads the trace that tells where each embedding came from.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// Client asks one gateway. It may be used from several goroutines.
type Client struct {
	Base string // e.g. "http://127.0.0.1:8000"
	HTTP *http.Client
	Key  string // API key; "" sends none
}

// Item says where the embedding of one picture came from.
type Item = control.TraceItem

// Stage is a point that the request passed in the gateway, in milliseconds since it arrived there.
type Stage = control.TraceStage

// Usage counts tokens, pictures included.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// Answer is what came back.
type Answer struct {
	Request      string  `json:"request"`
	Text         string  `json:"text"`
	FinishReason string  `json:"finish_reason"`
	Usage        Usage   `json:"usage"`
	TTFTMS       float64 `json:"ttft_ms"` // from sending to the first text
	TotalMS      float64 `json:"total_ms"`
	Prefill      string  `json:"prefill"`
	Attempts     int     `json:"attempts"`
	Items        []Item  `json:"items"`
	Stages       []Stage `json:"stages"`
}

// Error is an answer of the server that is not 200.
type Error struct {
	Status  int
	Message string
	Param   string
}

func (e *Error) Error() string { return fmt.Sprintf("the server answered %d: %s", e.Status, e.Message) }

// Ask sends q as a streamed request and calls text with each piece as it comes; text may be nil. On a
// cut stream it returns what had come together with the error.
func (c *Client) Ask(ctx context.Context, q Question, text func(string)) (Answer, error) {
	body, err := q.body()
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+control.PathChat, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	c.authorize(req)
	if q.Encoder != "" {
		req.Header.Set(control.HeaderEncoder, q.Encoder)
	}
	start := time.Now()
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("no answer from %s: %w", c.Base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Answer{}, readError(resp)
	}
	a := Answer{Request: resp.Header.Get(control.HeaderRequestID)}
	if err := a.read(resp.Body, start, text); err != nil {
		return a, err
	}
	return a, c.trace(ctx, resp.Header.Get(control.HeaderTrace), &a)
}

// authorize adds the key.
func (c *Client) authorize(req *http.Request) {
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
}

// chunk is the part of a stream event that is read.
type chunk struct {
	Choices []struct {
		Delta        struct{ Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage *Usage
	Error *struct{ Message string }
}

// read takes a stream in.
func (a *Answer) read(r io.Reader, start time.Time, text func(string)) error {
	ms := func() float64 { return float64(time.Since(start)) / float64(time.Millisecond) }
	events := openai.NewEventReader(r, openai.DefaultMaxEventBytes)
	var whole strings.Builder
	defer func() { a.Text, a.TotalMS = whole.String(), ms() }()
	for {
		c, done, err := nextChunk(events)
		if err != nil {
			return err
		}
		if done && a.FinishReason == "" {
			return errors.New("the answer was cut off: it ended without a finish reason")
		}
		if done {
			return nil
		}
		if c.Usage != nil {
			a.Usage = *c.Usage
		}
		for _, ch := range c.Choices {
			if ch.Delta.Content != "" {
				if a.TTFTMS == 0 {
					a.TTFTMS = ms()
				}
				whole.WriteString(ch.Delta.Content)
				if text != nil {
					text(ch.Delta.Content)
				}
			}
			if ch.FinishReason != "" {
				a.FinishReason = ch.FinishReason
			}
		}
	}
}

// nextChunk returns the next chunk of a stream, or that it is done.
func nextChunk(events *openai.EventReader) (c chunk, done bool, err error) {
	var data []byte
	for len(data) == 0 {
		ev, err := events.Next()
		if err != nil {
			return c, false, fmt.Errorf("the answer was cut off: %w", err)
		}
		if ev.Done {
			return c, true, nil
		}
		data = ev.Data()
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, false, fmt.Errorf("the server sent an event that is not JSON: %w", err)
	}
	if c.Error != nil {
		return c, false, errors.New("the answer was cut off: " + c.Error.Message)
	}
	return c, false, nil
}

// trace fills in where the embeddings came from. name is the gateway's for the trace.
func (c *Client) trace(ctx context.Context, name string, a *Answer) error {
	t, err := c.Trace(ctx, name)
	if err == nil {
		a.Prefill, a.Attempts, a.Items, a.Stages = t.Prefill, t.Attempts, t.Items, t.Stages
	}
	return err
}

// Trace returns what the gateway remembers of a request. name is the trace's, which is the request's own
// where the client has given it none.
func (c *Client) Trace(ctx context.Context, name string) (t control.Trace, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+control.PathTraces+"/"+url.PathEscape(name), nil)
	if err != nil {
		return t, err
	}
	c.authorize(req)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return t, fmt.Errorf("no trace from %s: %w", c.Base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return t, readError(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(&t); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

// maxErrorBody bounds what is read of an error.
const maxErrorBody = 1 << 20

func readError(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return err
	}
	var shape struct {
		Error struct {
			Message string
			Param   *string
		}
	}
	e := &Error{Status: resp.StatusCode, Message: cmp.Or(strings.TrimSpace(string(b)), http.StatusText(resp.StatusCode))}
	if json.Unmarshal(b, &shape) == nil && shape.Error.Message != "" {
		e.Message = shape.Error.Message
		if shape.Error.Param != nil {
			e.Param = *shape.Error.Param
		}
	}
	return e
}
