// SPDX-License-Identifier: Apache-2.0

package tracing

import "net/http"

// Handler has t record a span for each call that carries a trace context, named by its method and path: those of
// a worker. With a nil Tracer it is next itself.
func Handler(t *Tracer, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(HeaderParent) == "" {
			next.ServeHTTP(w, r)
			return
		}
		ctx, s := t.Serve(r, r.Method+" "+r.URL.Path)
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { // also when the handler breaks the connection
			s.Set("http.response.status_code", seen.status)
			if seen.status >= http.StatusInternalServerError {
				s.Fail(http.StatusText(seen.status))
			}
			s.End()
		}()
		next.ServeHTTP(seen, r.WithContext(ctx))
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController find the connection's own writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
