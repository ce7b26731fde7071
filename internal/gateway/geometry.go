// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/tracing"
)

// geometry remembers how many rows pictures of a size yield. The answer depends on nothing but the
// Encoders' fingerprint and the size, so entries never go stale.
type geometry struct {
	mu    sync.Mutex // guards known
	known map[geoKey]control.Geometry
}

type geoKey struct {
	fingerprint string
	size        control.Size
}

// maxGeometries bounds the memory; past it the map starts afresh, which costs one question per size.
const maxGeometries = 1 << 16

func newGeometry() *geometry { return &geometry{known: map[geoKey]control.Geometry{}} }

func (g *geometry) get(k geoKey) (control.Geometry, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.known[k]
	return v, ok
}

func (g *geometry) put(k geoKey, v control.Geometry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxGeometries {
		clear(g.known)
	}
	g.known[k] = v
}

// geometries returns the geometry of each size, asking e once for those that are not known. One that is not
// up is asked for none: what is not known is zero.
func (g *Gateway) geometries(ctx context.Context, e worker, sizes []control.Size) ([]control.Geometry, error) {
	out := make([]control.Geometry, len(sizes))
	var ask control.GeometryRequest
	var at []int
	for i, s := range sizes {
		v, ok := g.geo.get(geoKey{e.Seen.Namespace.Encoder, s})
		if ok {
			out[i] = v
			continue
		}
		ask.Sizes, at = append(ask.Sizes, s), append(at, i)
	}
	if len(at) == 0 || !e.Up {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.PrepareTimeout)
	defer cancel()
	var got control.GeometryResponse
	if err := g.call(ctx, e, control.PathGeometry, ask, &got); err != nil {
		return nil, err
	}
	if len(got.Sizes) != len(at) {
		return nil, nonsense(e, "answered %d geometries for %d sizes", len(got.Sizes), len(at))
	}
	for j, i := range at {
		out[i] = got.Sizes[j]
		g.geo.put(geoKey{e.Seen.Namespace.Encoder, sizes[i]}, out[i])
	}
	return out, nil
}

// maxControlBody bounds the answer to a control call.
const maxControlBody = 4 << 20

// call posts a JSON body to a worker and reads its JSON answer. An answer that is not 200 becomes a
// *workerError.
func (g *Gateway) call(ctx context.Context, w worker, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	tracing.Pass(req)
	if path == control.PathPrepare || path == control.PathAdopt {
		// Never sent twice: a P/D that has prepared it and died over the answer, or lost its connection, would
		// refuse its name. The repair has a name of its own.
		req.GetBody = nil
	}
	return g.do(req, w, answer)
}

// do sends req to w and decodes its answer.
func (g *Gateway) do(req *http.Request, w worker, answer any) error {
	admit.TellTimeout(req)
	ctx, done := g.fleet.silence.call(req.Context(), w.URL)
	defer done()
	resp, err := g.client.Do(req.WithContext(ctx))
	if err != nil {
		return g.broken(ctx, w, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxControlBody))
	if err != nil {
		return g.broken(ctx, w, err)
	}
	// That a worker answers questions says nothing of its work.
	if path := req.URL.Path; resp.StatusCode >= http.StatusInternalServerError || path == control.PathEncode || path == control.PathDeliver {
		g.outliers.answered(w, resp.StatusCode)
	}
	if resp.StatusCode != http.StatusOK {
		return answered(w, resp.StatusCode, b)
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return g.broken(ctx, w, fmt.Errorf("%s: %w", req.URL.Path, err))
	}
	return nil
}
