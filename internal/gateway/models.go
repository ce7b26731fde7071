// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// models returns one P/D announcement per model that the fleet has been seen to serve. A P/D that does
// not fit the fleet serves nothing.
func (s *snapshot) models() []control.Announcement {
	var out []control.Announcement
	for _, w := range s.Prefills {
		same := func(a control.Announcement) bool { return a.Model == w.Seen.Model }
		if w.Known && !w.Mismatch && !slices.ContainsFunc(out, same) {
			out = append(out, w.Seen)
		}
	}
	return out
}

// checkModel refuses a model that no worker serves. While no worker is known, none is unknown: the
// caller gets a 503 for the missing worker later.
func (s *snapshot) checkModel(name string) error {
	known := s.models()
	if len(known) == 0 {
		return nil
	}
	names := make([]string, len(known))
	for i, a := range known {
		// No name means the only model, as vLLM has it.
		if names[i] = a.Model; a.Model == name || name == "" {
			return nil
		}
	}
	return openai.ModelNotFound(name, strings.Join(names, ", "))
}

func (g *Gateway) serveModels(w http.ResponseWriter, r *http.Request) {
	var list []openai.Model
	for _, a := range g.fleet.snapshot().models() {
		list = append(list, openai.Model{ID: a.Model, Created: a.Created, OwnedBy: "afterimage", Root: a.Model, MaxModelLen: a.Context})
	}
	openai.WriteModels(w, list)
}

// serveFleet shows what the gateway knows of its workers.
func (g *Gateway) serveFleet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(g.fleet.snapshot())
}
