// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// blanks reads as white space, without end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) { return copy(p, space), nil }

var space = strings.Repeat(" ", 1<<20)

// TestAnswersAreBounded: of an answer that is too large nothing is passed on, and no more is read of one without end.
func TestAnswersAreBounded(t *testing.T) {
	w := httptest.NewRecorder()
	out := NewReply(w, 0)
	resp := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(io.MultiReader(strings.NewReader("{}"), blanks{}))}
	err := out.Pass(resp, func() {})
	if err == nil || !strings.Contains(err.Error(), "larger than") || out.Started() || w.Body.Len() > 0 {
		t.Errorf("got %v, %d bytes were passed on", err, w.Body.Len())
	}
}
