// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
)

// Routes mounts the worker API.
func (e *Encoder) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+control.PathWorker, func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, e.Announcement())
	})
	mux.HandleFunc("GET "+control.PathHeld, e.serveHeld)
	mux.HandleFunc("POST "+control.PathGeometry, e.serveGeometry)
	mux.HandleFunc("POST "+control.PathEncode, e.serveEncode)
	mux.HandleFunc("POST "+control.PathDeliver, e.serveDeliver)
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, err *control.Error) {
	if err.Status == http.StatusTooManyRequests || err.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, err.Status, map[string]*control.Error{"error": err})
}

// maxGeometryBody bounds a geometry call; a size takes about 30 bytes.
const maxGeometryBody = 64 << 10

func (e *Encoder) serveGeometry(w http.ResponseWriter, r *http.Request) {
	var req control.GeometryRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxGeometryBody)).Decode(&req); err != nil {
		refuse(w, bodyFault(fmt.Errorf("geometry body: %w", err)))
		return
	}
	resp := control.GeometryResponse{Sizes: []control.Geometry{}}
	for _, s := range req.Sizes {
		if s.Width < 1 || s.Height < 1 || s.Width > e.cfg.Limits.MaxPixels/s.Height {
			refuse(w, badRequest("size %dx%d is outside 1x1 to %d pixels", s.Width, s.Height, e.cfg.Limits.MaxPixels))
			return
		}
		l, err := e.layout(r.Context(), s.Width, s.Height)
		if err != nil {
			refuse(w, fault(err))
			return
		}
		resp.Sizes = append(resp.Sizes, control.Geometry{
			Rows: l.Rows(), Tokens: l.KVCells(),
			Bytes: wire.ObjectBytes(l, e.spec.Cols, e.spec.DType),
		})
	}
	reply(w, http.StatusOK, resp)
}

// bodyFault is fault for the body of a call, which can fail in no way that is this side's.
func bodyFault(err error) *control.Error {
	if f := fault(err); f.Status < 500 {
		return f
	}
	return badRequest("%v", err)
}

func badRequest(format string, args ...any) *control.Error {
	return &control.Error{Status: http.StatusBadRequest, Type: openai.TypeBadRequest, Message: fmt.Sprintf(format, args...)}
}

func (e *Encoder) serveEncode(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	req, files, err := control.ReadEncodeBody(http.MaxBytesReader(w, r.Body, e.cfg.MaxBodyBytes+1<<20), control.EncodeLimits{
		Items: e.cfg.MaxItems, ImageBytes: int(e.cfg.Limits.MaxBytes), TotalBytes: e.cfg.MaxBodyBytes,
	})
	if err != nil {
		refuse(w, bodyFault(err))
		return
	}
	items := make([]*item, len(req.Items))
	for i := range items {
		items[i] = &item{req: req.Items[i], tenant: req.Tenant, file: files[i]}
		defer e.board.begin(e.cfg.Namespace.Key(req.Items[i].Identifier))()
	}
	if req.Force {
		e.forget(r.Context(), items)
	}
	e.work(r.Context(), items, req.Force, start)
	e.reply(w, items)
}

// forget takes items that are to be made afresh out of the cache, and out of the Store those whose objects are wrong:
// Stores keep what they have, so that a fresh object would not take its place.
func (e *Encoder) forget(ctx context.Context, items []*item) {
	var wrong []embedding.Key
	for _, it := range items {
		key := e.cfg.Namespace.Key(it.req.Identifier)
		e.cfg.Cache.Remove(key)
		if it.req.Wrong {
			wrong = append(wrong, key)
		}
	}
	e.cfg.Resolver.Forget(ctx, wrong)
}

// reply answers a call item by item and lets go of the objects.
func (e *Encoder) reply(w http.ResponseWriter, items []*item) {
	resp := control.EncodeResponse{Encoder: e.cfg.Name}
	for _, it := range items {
		resp.Items = append(resp.Items, e.answer(it))
		if it.buf != nil {
			it.buf.Release()
		}
	}
	reply(w, http.StatusOK, resp)
}

// work takes all items from their files to confirmed deliveries. It returns when each has an outcome.
func (e *Encoder) work(ctx context.Context, items []*item, force bool, start time.Time) {
	for _, it := range items {
		it.err = e.inspect(ctx, it)
	}
	if !force {
		e.resolve(ctx, items)
	}
	var wg sync.WaitGroup
	for _, it := range items {
		if it.err != nil {
			continue
		}
		wg.Go(func() {
			if it.buf == nil {
				it.err = e.encode(ctx, it)
			}
			it.resolved = time.Since(start)
			if it.err == nil {
				e.board.post(it)
				it.err = e.deliver(ctx, it)
			}
			it.done = time.Since(start)
		})
	}
	wg.Wait()
}

// answer reports an item's outcome and counts it.
func (e *Encoder) answer(it *item) control.EncodedItem {
	a := control.EncodedItem{
		Identifier: it.req.Identifier, Source: it.source, Delivered: it.err == nil,
		QueueMS:     float64(it.queued.Load()) / float64(time.Millisecond),
		ResolvedMS:  float64(it.resolved) / float64(time.Millisecond),
		DeliveredMS: float64(it.done) / float64(time.Millisecond),
	}
	if it.err != nil {
		a.Error = fault(it.err)
		if a.Error.Status >= 500 {
			e.cfg.Logger.Warn("image failed", "key", it.key, "source", it.source, "err", it.err)
		}
		e.metrics.items.WithLabelValues("failed").Inc()
		return a
	}
	a.Rows, a.Cols, a.Bytes = it.layout.Rows(), e.spec.Cols, it.buf.Len()
	e.metrics.items.WithLabelValues(string(it.source)).Inc()
	return a
}
