// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"afterimage/internal/proxy"
)

// toldError: the answer failed, and the stream that went out says so already.
type toldError struct{ err error }

func (e *toldError) Error() string { return e.err.Error() }
func (e *toldError) Unwrap() error { return e.err }

// relay passes P/D's answer on, byte for byte.
func (g *Gateway) relay(ctx context.Context, resp *http.Response, out *proxy.Reply, pd worker) error {
	err := out.Pass(resp, func() { g.fleet.silence.alive(pd.URL) })
	var broken *proxy.BrokenError
	switch {
	case errors.As(err, &broken):
		return g.broken(ctx, pd, broken.Err)
	case errors.Is(err, proxy.ErrToldFailure):
		return &toldError{fmt.Errorf("%s ended its answer with an error", pd.Seen.Name)}
	case err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", pd.Seen.Name, err)
	}
	return err
}
