// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strings"

	"afterimage/internal/openai"
)

// Unrouted returns a handler for what no route of mux takes, in the API's own shapes: 405 with the
// methods that a path has, or 404.
func Unrouted(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allow []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			other := *r
			other.Method = method
			if _, pattern := mux.Handler(&other); strings.HasPrefix(pattern, method+" ") {
				allow = append(allow, method)
			}
		}
		if len(allow) == 0 {
			openai.NotFound(w)
			return
		}
		openai.MethodNotAllowed(w, strings.Join(allow, ", "))
	}
}
