// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"net/http"
	"strconv"

	"afterimage/internal/control"
)

// serveHeld tells what the cache holds, or what has changed there since a version that the caller knows.
func (e *Encoder) serveHeld(w http.ResponseWriter, r *http.Request) {
	since := uint64(0)
	if text := r.URL.Query().Get("since"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			refuse(w, badRequest("since=%.20q is no version; give the one of an earlier answer, or leave it out", text))
			return
		}
		since = n
	}
	c := e.cfg.Cache.Changes(since)
	reply(w, http.StatusOK, control.Held{Boot: e.boot, Version: c.Version, Whole: c.Whole, In: c.In, Out: c.Out})
}
