// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/http"
	"time"
)

// NewClient returns a client for calls to workers. Connections are kept idle for up to idle, which must be
// below the time-out of the workers' own servers: a pooled connection is given up here before it is closed
// there. There is no time-out over a whole call: answers stream for as long as they stream. Dialling is
// bounded, and so is each call by its context. With idle below 0, each call has a connection of its own.
func NewClient(idle time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     max(idle, 0),
			DisableKeepAlives:   idle < 0,
			DisableCompression:  true,
			WriteBufferSize:     64 << 10,
			ReadBufferSize:      32 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
