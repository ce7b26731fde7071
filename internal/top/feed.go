// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxEvent bounds an event; one with as many requests as a gateway tells at once has some 100 KiB.
const maxEvent = 8 << 20

// maxMetrics bounds the text of a gateway's metrics, of which there are some 30 KiB.
const maxMetrics = 4 << 20

// Source is a gateway.
type Source struct {
	URL  string // without a slash at its end
	Key  string // API key; "" sends none
	HTTP *http.Client
}

// ErrNoView is for gateways without a live view.
var ErrNoView = errors.New("this gateway has no live view: it serves vLLM workers, or gateway.dashboard is off")

// get asks for a path. The caller closes the body.
func (s Source) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp, nil
	case http.StatusNotFound:
		err = ErrNoView
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("the gateway answered %s: give a key that may look at the fleet with --api-key or AFTERIMAGE_API_KEY", resp.Status)
	default:
		err = fmt.Errorf("the gateway answered %s", resp.Status)
	}
	resp.Body.Close()
	return nil, err
}

// Metrics reads the gateway's series.
func (s Source) Metrics(ctx context.Context) (Series, error) {
	resp, err := s.get(ctx, "/metrics")
	if err != nil {
		return Series{}, err
	}
	defer resp.Body.Close()
	return ReadSeries(io.LimitReader(resp.Body, maxMetrics))
}

// Follow calls each for every event until ctx ends or the connection does, and returns why: never nil.
func (s Source) Follow(ctx context.Context, each func(Event)) error {
	resp, err := s.get(ctx, "/v1/live")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("the gateway's events cannot be read: %w", err)
		}
		each(e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the gateway has ended the connection")
}

// Once returns what the gateway shows at this moment.
func (s Source) Once(ctx context.Context) (Snapshot, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	v, got := NewViewer(s.URL), false
	err := s.Follow(ctx, func(e Event) {
		if !got {
			v.Add(e, time.Now())
			got = true
		}
		enough()
	})
	if !got {
		return Snapshot{}, err
	}
	if series, err := s.Metrics(context.WithoutCancel(ctx)); err == nil {
		v.Measure(series)
	}
	return v.Snapshot(time.Now()), nil
}
