// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"afterimage/internal/openai"
)

// maxProfile bounds what a profiling call and its answer may hold.
const maxProfile = 64 << 10

// serveProfile starts or stops the profiler of one instance of each role, and answers with what they say.
func (f *Front) serveProfile(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProfile))
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		if !json.Valid(body) {
			openai.WriteError(w, openai.BadRequest("", "the body is not JSON"))
			return
		}
		said := map[string]json.RawMessage{}
		known := false
		for _, role := range []Role{Encode, Prefill, Decode, PrefillDecode} {
			e := f.reg.pick(role, f.cfg.Routing, shunned{}, time.Now())
			if e == nil {
				continue
			}
			got, err := f.profile(r.Context(), e, what, body)
			if err != nil {
				openai.WriteError(w, clientError(err))
				return
			}
			known = known || got != nil
			if role == PrefillDecode && !f.cfg.Dynamic {
				role = Decode
			}
			said[string(role)] = got
		}
		if !known {
			openai.WriteError(w, openai.Unavailable(0, "Profiling endpoints are disabled on every instance"))
			return
		}
		answer(w, said)
	}
}

// profile makes one call; nil if the instance has no such endpoint.
func (f *Front) profile(ctx context.Context, e *entry, what string, body []byte) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/"+what+"_profile", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, callBroken(ctx, stage(e.Role), e.URL, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxProfile))
	switch {
	case err != nil:
		return nil, callBroken(ctx, stage(e.Role), e.URL, err)
	case resp.StatusCode == http.StatusNotFound:
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, refusal(stage(e.Role), e.URL, resp.StatusCode, got)
	case !json.Valid(got):
		return json.RawMessage("null"), nil
	}
	return got, nil
}
