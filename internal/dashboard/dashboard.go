// SPDX-License-Identifier: Apache-2.0

// Package dashboard is the page at a gateway's "/": the fleet, the latest requests picture by picture, what
// reuse saved, and a place to try it. The page is part of the binary, loads nothing from elsewhere, and is
// kept up to date by server-sent events.
//
// It shows no prompts, no addresses, and no names that clients gave their requests; and small pictures only where the
// gateway makes thumbnails. Where the gateway
// asks for keys, the page itself has nothing to hide, and asks for one: any key may ask questions, an admin's sees
// what all tenants' requests came to.
package dashboard

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"

	"afterimage/internal/gateway"
	"afterimage/internal/store"
)

// Config says what the page shows.
type Config struct {
	Version string
	// View shows the gateway; since is the revision that the caller knows.
	View func(since uint64) gateway.View
	// Totals sums the Store up; nil where the gateway cannot ask it. It is asked once in StoreEvery while
	// somebody looks, never twice at a time.
	Totals func(context.Context) (store.Totals, error)
	// Registry takes the number of viewers; nil is nobody.
	Registry prometheus.Registerer
	// Every is how often the page is told what changed. Default 500 ms.
	Every time.Duration
	// WriteTimeout bounds each write to a viewer. Default 10 s.
	WriteTimeout time.Duration
}

// Dashboard serves the page. All methods may be called from any goroutine.
type Dashboard struct {
	cfg     Config
	totals  totals
	viewers atomic.Int32
}

// New returns a Dashboard.
func New(cfg Config) *Dashboard {
	if cfg.Every <= 0 {
		cfg.Every = 500 * time.Millisecond
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	d := &Dashboard{cfg: cfg, totals: totals{ask: cfg.Totals}}
	if cfg.Registry != nil {
		gauge := func(name, help string, f func() float64) {
			cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "afterimage_dashboard_" + name, Help: help}, f))
		}
		gauge("viewers", "Browsers and terminals that follow the gateway live.", func() float64 { return float64(d.viewers.Load()) })
		gauge("limit_viewers", "Most of them; more are refused.", func() float64 { return maxViewers })
	}
	return d
}

// Routes mounts the page, its files and its events.
func (d *Dashboard) Routes(mux *http.ServeMux) {
	mux.Handle("GET /{$}", asset("index.html"))
	for _, name := range []string{"api.js", "app.js", "show.js", "play.js", "thumbs.js", "style.css", "icon.svg"} {
		mux.Handle("GET /dashboard/"+name, asset(name))
	}
	mux.HandleFunc("GET /v1/live", d.serveLive)
}

//go:embed assets
var assets embed.FS

// policy lets the page load what comes from the gateway and nothing else.
const policy = "default-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// asset serves a file of the page. Browsers ask again whether it is still the same.
func asset(name string) http.Handler {
	body, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is part of the binary
	}
	tag := fmt.Sprintf("\"%x\"", xxh3.Hash(body))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	})
}
