// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/client"
)

// Overlap measures what it brings that a P/D begins with a prompt while Encoders still work on its pictures:
// the same requests, a text before a picture that nobody knows, on a fleet that does and on one that waits for
// all embeddings first. The engine is the modelled accelerator.
type Overlap struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none
	Rounds   int       // requests on each fleet, in turns
}

// DefaultOverlap returns the figures that the target is stated for.
func DefaultOverlap() Overlap { return Overlap{Rounds: 20} }

// The modelled device takes 105 ms to encode a picture and 0.1 ms for a position; a text of 1000 tokens takes
// about as long as the encode, which hides behind it at best.
const (
	overlapDevice = "encode=105ms,prefill=100us,rows=256"
	overlapText   = 1000
	// maxOverlapRatio: of 105 + 100 + 26 ms, at most 100 are saved, which leaves 0.57.
	maxOverlapRatio = 0.75
)

// overlapMemory keeps the two fleets small.
var overlapMemory = []string{"--engine", "device", "--device", overlapDevice, "--store-kind", "none",
	"--encoder-arena-bytes", "64MiB", "--encoder-cache-bytes", "16MiB", "--prefill-arena-bytes", "64MiB"}

// Run measures. It returns an error when something did not work at all.
func (o Overlap) Run(ctx context.Context) (Report, error) {
	p := newProgress(o.Progress)
	defer p.end()
	p.step("starting a fleet with overlap and one without")
	l := newLauncher(o.Binary, o.Env)
	with, err := l.up(ctx, overlapMemory...)
	if err != nil {
		return Report{}, err
	}
	defer with.stop()
	without, err := l.up(ctx, append([]string{"--no-overlap"}, overlapMemory...)...)
	if err != nil {
		return Report{}, err
	}
	defer without.stop()
	p.step("asking about pictures, on each in turn")
	on, off, err := o.inTurns(ctx, p, with.url, without.url)
	if err != nil {
		return Report{}, err
	}
	name := fmt.Sprintf("%d tokens of text, then a fresh picture", overlapText)
	return Report{
		Name: "overlap",
		Note: "modelled accelerator (" + overlapDevice + "); the fleets, the network and the bytes are real",
		Rows: []Row{Against(name, "answer of one token, p50 ms", Quantile(on, 0.5), "--no-overlap", Quantile(off, 0.5), maxOverlapRatio)},
	}, nil
}

// inTurns asks both fleets about each picture, one after the other, and returns how many milliseconds each took.
func (o Overlap) inTurns(ctx context.Context, p *progress, with, without string) (on, off []float64, err error) {
	for i := range o.Rounds + 1 { // the first round warms up
		file, err := painted(256, uint64(i))
		if err != nil {
			return nil, nil, err
		}
		first, err := askAfterText(ctx, with, i, file)
		if err != nil {
			return nil, nil, err
		}
		second, err := askAfterText(ctx, without, i, file)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			on, off = append(on, first), append(off, second)
		}
		p.at(i, o.Rounds)
	}
	return on, off, nil
}

// askAfterText asks for one token about a text and then a picture, and returns how many milliseconds it took.
// Each round has a text of its own, of which no P/D remembers the beginning.
func askAfterText(ctx context.Context, url string, round int, file []byte) (float64, error) {
	body, err := json.Marshal(map[string]any{"max_tokens": 1, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": fmt.Sprintf("%d %s", round, strings.Repeat("x", overlapText))},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": client.DataURL(file)}},
	}}}})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("bench: %s answered %s: %s", url, resp.Status, b)
	}
	return float64(time.Since(start)) / float64(time.Millisecond), err
}
