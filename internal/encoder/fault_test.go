// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/transport"
)

// TestFault: whose fault an error is. 4xx, but 429 and 499, ends the client's request.
func TestFault(t *testing.T) {
	f := func(err error, status int, kind string) {
		t.Helper()
		if got := fault(err); got.Status != status || kind != "" && got.Type != kind || got.Message == "" {
			t.Errorf("%v: got %d %s %q, want %d %s", err, got.Status, got.Type, got.Message, status, kind)
		}
	}
	bad := &media.Error{Kind: media.ErrBadImage, Msg: "cut off"}
	f(bad, 400, "")
	f(fmt.Errorf("x: %w", bad), 400, "")
	f(&control.Error{Status: 413, Message: "large"}, 413, "")
	f(&http.MaxBytesError{Limit: 1}, 413, "")
	f(errQueueFull, 429, "")
	f(fmt.Errorf("x: %w", context.Canceled), 499, "")
	f(&deliveryError{context.Canceled}, 499, "")
	f(&deliveryError{transport.ErrGone}, 503, control.TypeDelivery)
	f(&deliveryError{fmt.Errorf("%w: %w", transport.ErrRejected, embedding.ErrNotFinite)}, 503, control.TypeDelivery)
	f(embedding.ErrNotFinite, 500, "")
	f(context.DeadlineExceeded, 503, "")
	f(errors.New("engine lost"), 503, "")
	if got := bodyFault(errors.New("unexpected EOF")); got.Status != 400 {
		t.Errorf("a body that breaks off: %d", got.Status)
	}
	if got := bodyFault(&control.Error{Status: 413, Message: "large"}); got.Status != 413 {
		t.Errorf("a large body: %d", got.Status)
	}
}
