// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"encoding/json"
	"net/http"
	"sync"
)

// Ready says whether a request without media could be served, and if not, why.
func (f *Front) Ready() error {
	s := f.reg.Status()
	switch {
	case len(s.PrefillDecode.Live) > 0 || len(s.Decode.Live) > 0 && len(s.Prefill.Live) > 0:
		return nil
	case len(s.Decode.Live) > 0:
		return missing(Prefill)
	}
	return missing(Decode)
}

// ServeHealth answers GET /health. Of a fleet that registers it shows the roster; the instances of one that
// does not change are asked.
func (f *Front) ServeHealth(w http.ResponseWriter, r *http.Request) {
	switch {
	case f.cfg.Dynamic && f.cfg.Private:
		answer(w, map[string]string{"proxy": "healthy"})
	case f.cfg.Dynamic:
		answer(w, struct {
			Proxy     string `json:"proxy"`
			Instances Status `json:"instances"`
		}{"healthy", f.reg.Status()})
	default:
		f.serveClusters(w, r)
	}
}

// serveClusters asks all instances and answers how those of each role are.
func (f *Front) serveClusters(w http.ResponseWriter, r *http.Request) {
	all := f.reg.all()
	ok := make([]bool, len(all))
	var wg sync.WaitGroup
	for i, e := range all {
		wg.Go(func() { ok[i] = f.healthy(r.Context(), e.URL) })
	}
	wg.Wait()
	state := map[Role]string{Encode: "empty", Prefill: "empty", Decode: "empty"}
	status := http.StatusOK
	for i, e := range all {
		role := e.Role
		if role == PrefillDecode {
			role = Decode
		}
		switch {
		case !ok[i]:
			state[role], status = "unhealthy", http.StatusServiceUnavailable
		case state[role] == "empty":
			state[role] = "healthy"
		}
	}
	body, _ := json.Marshal(struct {
		Proxy   string `json:"proxy"`
		Encode  string `json:"encode_cluster"`
		Prefill string `json:"prefill_cluster"`
		Decode  string `json:"decode_cluster"`
	}{"healthy", state[Encode], state[Prefill], state[Decode]}) // strings always can be
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that left is no concern
}
