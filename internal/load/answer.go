// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// answer is a request under way.
type answer struct {
	rec          *Record
	due          time.Time
	first, last  time.Time // of text
	begun, ended time.Time // of events with choices
	pieces       int
	finished     bool   // a finish reason came
	trace        string // name of the gateway's trace
}

// maxErrorBody bounds what is read of an error.
const maxErrorBody = 4 << 10

// ask sends the request and reads the answer to its end.
func (a *answer) ask(ctx context.Context, cfg *Config, s *Shot, body io.Reader, n int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.URL+control.PathChat, body)
	if err != nil {
		return err
	}
	req.ContentLength = n
	req.Header.Set("Content-Type", "application/json")
	if cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.Key)
	}
	for k, v := range s.Header {
		req.Header.Set(k, v)
	}
	a.rec.LagMS = milliseconds(time.Since(a.due))
	defer func() { a.rec.EndMS = milliseconds(time.Since(a.due)) }()
	resp, err := cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.rec.Status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return fmt.Errorf("%s: %.300s", resp.Status, strings.TrimSpace(string(b)))
	}
	a.trace = resp.Header.Get(control.HeaderTrace)
	return a.read(resp.Body)
}

// event is the part of a stream event that is read.
type event struct {
	Choices []struct {
		Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

// read takes the stream in.
func (a *answer) read(r io.Reader) error {
	events := openai.NewEventReader(r, openai.DefaultMaxEventBytes)
	for {
		ev, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && a.finished: // some servers leave [DONE] out
			return a.done()
		case err != nil:
			return fmt.Errorf("the answer was cut off: %w", err)
		case ev.Done && !a.finished:
			return errors.New("the answer was cut off: it ended without a finish reason")
		case ev.Done:
			return a.done()
		}
		data := ev.Data()
		if len(data) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event is not JSON: %w", err)
		}
		if e.Error != nil {
			return errors.New("the answer was cut off: " + e.Error.Message)
		}
		a.take(&e)
	}
}

// take notes one event.
func (a *answer) take(e *event) {
	if e.Usage != nil {
		a.rec.Tokens = e.Usage.CompletionTokens
	}
	for _, c := range e.Choices {
		a.ended = time.Now()
		if a.begun.IsZero() {
			a.begun = a.ended
		}
		if c.FinishReason != "" {
			a.finished = true
		}
		if c.Delta.Content == "" && c.Delta.Reasoning == "" {
			continue
		}
		now := a.ended
		if a.pieces == 0 {
			a.first = now
			a.rec.TTFTMS = milliseconds(now.Sub(a.due))
		} else {
			a.rec.gaps = append(a.rec.gaps, now.Sub(a.last))
		}
		a.pieces++
		a.last = now
	}
}

// done sums up an answer that ended well. Tokens may stand for no text, all of them even: then events tell when
// the answer began.
func (a *answer) done() error {
	if a.rec.Tokens == 0 {
		a.rec.Tokens = a.pieces
	}
	if a.pieces == 0 && a.rec.Tokens > 0 {
		a.first, a.last = a.begun, a.ended
		a.rec.TTFTMS = milliseconds(a.begun.Sub(a.due))
	}
	if a.rec.Tokens > 1 && a.last.After(a.first) {
		a.rec.TPOTMS = milliseconds(a.last.Sub(a.first)) / float64(a.rec.Tokens-1)
	}
	return nil
}

// tell asks the gateway for what it remembers of the answer. A trace that it does not tell is left out.
func (a *answer) tell(ctx context.Context, cfg *Config) {
	var t control.Trace
	if a.trace != "" && getJSON(ctx, cfg, control.PathTraces+"/"+a.trace, &t) == nil {
		a.rec.Trace = &t
	}
}

// maxPage bounds what is read of a page.
const maxPage = 4 << 20

// getJSON reads a page of the server.
func getJSON(ctx context.Context, cfg *Config, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.URL+path, nil)
	if err != nil {
		return err
	}
	if cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.Key)
	}
	resp, err := cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", path, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxPage)).Decode(into)
}

// Model returns the name of the first model that the server offers.
func Model(ctx context.Context, cfg Config) (string, error) {
	var list struct{ Data []struct{ ID string } }
	if err := getJSON(ctx, &cfg, "/v1/models", &list); err != nil {
		return "", fmt.Errorf("no model list from %s: %w", cfg.URL, err)
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%s serves no model", cfg.URL)
	}
	return list.Data[0].ID, nil
}
