// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"afterimage/internal/openai"
)

// serveModels answers with the models of all workers that decode, each once. One worker's list is passed on as
// it is.
func (f *Front) serveModels(w http.ResponseWriter, r *http.Request) {
	var from []*entry
	for _, e := range f.reg.all() {
		if e.Role == Decode || e.Role == PrefillDecode {
			from = append(from, e)
		}
	}
	if len(from) == 0 {
		openai.WriteError(w, missing(Decode))
		return
	}
	switch lists, failed := f.modelLists(r.Context(), from); len(lists) {
	case 0:
		openai.WriteError(w, clientError(failed))
	case 1:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(lists[0]) // a caller that left is no concern
	default:
		answer(w, map[string]any{"object": "list", "data": mergeModels(lists)})
	}
}

// modelLists returns the lists of the instances that answer, in order, and why one of the others does not.
func (f *Front) modelLists(ctx context.Context, from []*entry) (lists [][]byte, failed error) {
	all := make([][]byte, len(from))
	errs := make([]error, len(from))
	var wg sync.WaitGroup
	for i, e := range from {
		wg.Go(func() { all[i], errs[i] = f.get(ctx, e, "/v1/models") })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			failed = err
			continue
		}
		lists = append(lists, all[i])
	}
	return lists, failed
}

// mergeModels returns the models of all lists, each once.
func mergeModels(lists [][]byte) []json.RawMessage {
	seen := map[string]bool{}
	models := []json.RawMessage{} // an empty list, in JSON, too
	for _, list := range lists {
		models = appendModels(models, list, seen)
	}
	return models
}

// appendModels appends the models of a list that are not seen yet.
func appendModels(out []json.RawMessage, list []byte, seen map[string]bool) []json.RawMessage {
	var l struct {
		Data []json.RawMessage `json:"data"`
	}
	if json.Unmarshal(list, &l) != nil {
		return out
	}
	for _, raw := range l.Data {
		var m struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &m) == nil && !seen[m.ID] {
			seen[m.ID] = true
			out = append(out, raw)
		}
	}
	return out
}

// get asks an instance for something small.
func (f *Front) get(ctx context.Context, e *entry, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, callBroken(ctx, stageDecode, e.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, callBroken(ctx, stageDecode, e.URL, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(stageDecode, e.URL, resp.StatusCode, body)
	}
	return body, nil
}
