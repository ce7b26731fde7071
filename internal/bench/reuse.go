// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"afterimage/internal/client"
	"afterimage/internal/control"
)

// reuse asks about each picture on one Encoder and, once it is published, on another.
type reuse struct {
	// ask asks about one picture on the Encoder with this index.
	ask func(ctx context.Context, encoder int, picture []byte) (client.Answer, error)
	// published returns when Encoder 0 has given n objects to the Store since the measurement began.
	published func(ctx context.Context, n int) error
	done      func(i int) // told after each picture; may be nil
}

// times are those of one way to come by an embedding, in milliseconds.
type times struct {
	item []float64 // from the Encoder's receipt to the confirmed delivery
	text []float64 // from the client's request to the first text
}

// reuseTimes are the times of three ways to come by the same embeddings.
type reuseTimes struct{ fresh, store, local times }

// askFor asks and files the times, if the embedding came from where it should.
func (r *reuse) askFor(ctx context.Context, encoder int, picture []byte, want control.Source, into *times) error {
	a, err := r.ask(ctx, encoder, picture)
	if err != nil {
		return err
	}
	if len(a.Items) != 1 {
		return fmt.Errorf("bench: the trace of request %s has %d items, want 1", a.Request, len(a.Items))
	}
	if got := a.Items[0].Source; got != want {
		return fmt.Errorf("bench: encoder-%d took the embedding of request %s from %q, want %q", encoder, a.Request, got, want)
	}
	if a.Text == "" {
		return fmt.Errorf("bench: request %s was answered without text", a.Request)
	}
	into.item = append(into.item, a.Items[0].MS)
	into.text = append(into.text, a.TTFTMS)
	return nil
}

// run measures with every picture: a fresh encode on Encoder 0, a Store hit on Encoder 1, and a hit in
// Encoder 1's own cache. The first picture only warms up connections and memory.
func (r *reuse) run(ctx context.Context, pictures [][]byte) (reuseTimes, error) {
	var t, warm reuseTimes
	for i, p := range pictures {
		into := &t
		if i == 0 {
			into = &warm
		}
		if err := r.askFor(ctx, 0, p, control.SourceEncoded, &into.fresh); err != nil {
			return t, err
		}
		if err := r.published(ctx, i+1); err != nil {
			return t, err
		}
		if err := r.askFor(ctx, 1, p, control.SourceStore, &into.store); err != nil {
			return t, err
		}
		if err := r.askFor(ctx, 1, p, control.SourceLocal, &into.local); err != nil {
			return t, err
		}
		if r.done != nil {
			r.done(i)
		}
	}
	return t, nil
}

// rows turns the times into rows. target is the most that a Store hit may take of a fresh encode.
func (t *reuseTimes) rows(target float64) []Row {
	const item, text = "receipt to delivered, p50 ms", "first text, p50 ms"
	fresh, freshText := Quantile(t.fresh.item, 0.5), Quantile(t.fresh.text, 0.5)
	return []Row{
		Against("store hit", item, Quantile(t.store.item, 0.5), "fresh encode", fresh, target),
		Against("store hit", text, Quantile(t.store.text, 0.5), "fresh encode", freshText, 0),
		Against("local hit", item, Quantile(t.local.item, 0.5), "fresh encode", fresh, 0),
		Against("local hit", text, Quantile(t.local.text, 0.5), "fresh encode", freshText, 0),
	}
}

// encoderURL asks a gateway for the base URL of its Encoder with this name.
func encoderURL(ctx context.Context, gateway, name string) (string, error) {
	var fleet struct {
		Encoders []struct {
			URL          string
			Announcement struct{ Name string }
		}
	}
	b, err := get(ctx, gateway+"/v1/fleet")
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(b, &fleet); err != nil {
		return "", fmt.Errorf("bench: %s/v1/fleet: %w", gateway, err)
	}
	for _, e := range fleet.Encoders {
		if e.Announcement.Name == name {
			return e.URL, nil
		}
	}
	return "", fmt.Errorf("bench: %s/v1/fleet has no Encoder %s", gateway, name)
}

// Metrics of an Encoder's publisher. Every outcome but "stored" and "exists" is a drop.
const (
	publishTotal  = "afterimage_publish_objects_total"
	publishStored = publishTotal + `{outcome="stored"}`
	publishExists = publishTotal + `{outcome="exists"}`
)

// waitPublished waits until the Encoder at url has put n objects into the Store. A publication that
// was dropped is an error: the object would never come.
func waitPublished(ctx context.Context, url string, n int) error {
	return poll(ctx, fmt.Sprintf("%s has published %d objects", url, n), func() (bool, error) {
		b, err := get(ctx, url+"/metrics")
		if err != nil {
			return false, err
		}
		all, stored := sumMetric(b, publishTotal+"{"), sumMetric(b, publishStored)
		if dropped := all - stored - sumMetric(b, publishExists); dropped > 0 {
			return false, fmt.Errorf("bench: %s dropped %v publications: see %s on its /metrics", url, dropped, publishTotal)
		}
		return stored >= float64(n), nil
	})
}

// sumMetric adds up the samples of a page of metrics whose line begins with prefix.
func sumMetric(page []byte, prefix string) float64 {
	sum := 0.0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum += v
		}
	}
	return sum
}

// maxPage bounds what is read of a page of metrics or of the fleet.
const maxPage = 4 << 20

// get reads a page.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("bench: " + url + " answered " + resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPage))
}
