// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"afterimage/internal/route"
)

// pair takes Encoders out of service that cannot work with the P/Ds: rows of another engine, width or
// dtype would be refused later, or worse, not be refused. With several P/Ds that differ among
// themselves, the first that is known sets what the fleet is.
func (s *snapshot) pair() {
	i := slices.IndexFunc(s.Prefills, func(w worker) bool { return w.Known })
	if i < 0 {
		return
	}
	ref := s.Prefills[i].Seen
	for _, group := range [][]worker{s.Prefills, s.Encoders, s.Decodes} {
		for j := range group {
			w := &group[j]
			if !w.Known {
				continue
			}
			a := w.Seen
			switch {
			case a.Wire != ref.Wire || a.Keys != ref.Keys:
				w.unfit("wire version %d and key version %d, but %s has %d and %d", a.Wire, a.Keys, ref.Name, ref.Wire, ref.Keys)
			case a.Engine != ref.Engine:
				w.unfit("engine %q, but %s runs %q", a.Engine, ref.Name, ref.Engine)
			case a.Cols != ref.Cols || a.DType != ref.DType:
				w.unfit("rows of %d x %v, but %s takes %d x %v", a.Cols, a.DType, ref.Name, ref.Cols, ref.DType)
			case a.Model != ref.Model:
				w.unfit("model %q, but %s serves %q", a.Model, ref.Name, ref.Model)
			}
		}
	}
	s.pairNamespaces()
}

// unfit takes w out of service.
func (w *worker) unfit(format string, args ...any) {
	w.Mismatch = true
	if w.Up {
		w.Up, w.Why = false, "mismatch: "+fmt.Sprintf(format, args...)
	}
}

// pairNamespaces keeps only Encoders of one namespace in service: identifiers and keys are built for
// the fleet, not for an Encoder.
func (s *snapshot) pairNamespaces() {
	i := slices.IndexFunc(s.Encoders, func(w worker) bool { return w.Up })
	if i < 0 {
		return
	}
	ref := s.Encoders[i].Seen
	for j := i + 1; j < len(s.Encoders); j++ {
		w := &s.Encoders[j]
		switch {
		case !w.Up:
		case *w.Seen.Namespace != *ref.Namespace:
			w.unfit("namespace %s, but %s has %s", w.Seen.Namespace, ref.Name, ref.Namespace)
		case w.Seen.VLLM != nil && ref.VLLM != nil && *w.Seen.VLLM != *ref.VLLM:
			w.unfit("pictures named as vLLM does for %+v, but %s does for %+v", *w.Seen.VLLM, ref.Name, *ref.VLLM)
		}
	}
}

// namesByBytes says whether Encoders name pictures as vLLM does, by more of a file than is remembered without it.
func (s *snapshot) namesByBytes() bool {
	return slices.ContainsFunc(s.Encoders, func(w worker) bool { return w.Known && w.Seen.VLLM != nil })
}

// ready says whether a request with an image could be served, and each worker was asked for its name: a client
// may name any of them from the first request on.
func (s *snapshot) ready() error {
	for _, ws := range [][]worker{s.Prefills, s.Encoders, s.Decodes} {
		if i := slices.IndexFunc(ws, func(w worker) bool { return w.Why == notProbed }); i >= 0 {
			return fmt.Errorf("%s was not asked for its name yet", ws[i].URL)
		}
	}
	if err := s.need("P/D", s.Prefills); err != nil {
		return err
	}
	return s.need("Encoder", s.Encoders)
}

func (s *snapshot) need(role string, ws []worker) error {
	if slices.ContainsFunc(ws, func(w worker) bool { return w.Up }) {
		return nil
	}
	if len(ws) == 0 {
		return fmt.Errorf("no %s is configured", role)
	}
	var why []string
	for i, w := range ws {
		name := w.Seen.Name
		if name == "" {
			name = fmt.Sprintf("%s %d of %d", role, i+1, len(ws))
		}
		why = append(why, name+": "+w.Why)
	}
	return errors.New("no " + role + " is ready (" + strings.Join(why, "; ") + ")")
}

func everyone(worker) bool { return true }

// peers is the view that package route decides on: those that are up, and fit.
func peers(ws []worker, fit func(worker) bool) []route.Peer {
	out := make([]route.Peer, len(ws))
	for i, w := range ws {
		out[i] = route.Peer{
			Name: w.Seen.Name, Ready: w.Up && fit(w),
			Load: w.Seen.Running + w.Seen.Waiting,
		}
	}
	return out
}
