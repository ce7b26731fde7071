// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"afterimage/internal/proxy"
)

// relay passes P/D's answer on, byte for byte.
func (g *Gateway) relay(ctx context.Context, resp *http.Response, out *proxy.Reply, pd worker) error {
	err := out.Pass(resp, func() { g.fleet.silence.alive(pd.URL) })
	var broken *proxy.BrokenError
	switch {
	case errors.As(err, &broken):
		return g.broken(ctx, pd, broken.Err)
	case err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", pd.Seen.Name, err)
	}
	return err
}
