// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/openai"
	"afterimage/internal/tenant"
)

// Config says what a Door asks for.
type Config struct {
	// Keys returns the keys in force; nil asks for none.
	Keys func() *tenant.Set
	// MaxText and MaxImages bound the requests in work, those without and those with images; 0 is no limit.
	MaxText, MaxImages int
	// MaxQueued bounds the requests of each kind that wait, MaxQueuedBytes the memory that they hold meanwhile (0 is
	// no limit), MaxWait how long each does.
	MaxQueued      int
	MaxQueuedBytes int64
	MaxWait        time.Duration
	// ClosedMetrics asks for an admin key at /metrics.
	ClosedMetrics bool
	Registry      prometheus.Registerer
}

// Door lets requests through to a gateway. Methods may be called from any goroutine.
type Door struct {
	cfg     Config
	meters  tenant.Meters
	queues  [2]*queue // by Kind; nil without a limit
	metrics *metrics
}

// New returns a Door and registers its metrics.
func New(cfg Config) *Door {
	d := &Door{cfg: cfg}
	for kind, places := range map[Kind]int{Text: cfg.MaxText, Images: cfg.MaxImages} {
		if places > 0 {
			d.queues[kind] = newQueue(places, share{cfg.MaxQueued, cfg.MaxQueuedBytes}, cfg.MaxWait)
		}
	}
	d.metrics = newMetrics(d)
	return d
}

// Forget drops what is known of tenants that have no key any more.
func (d *Door) Forget() {
	if d.cfg.Keys != nil {
		d.meters.Sweep(d.cfg.Keys())
	}
}

// Wrap returns mux behind the door.
func (d *Door) Wrap(mux *http.ServeMux) http.Handler {
	idle := d.cfg.Keys == nil && d.queues == [2]*queue{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if idle && r.Header[HeaderTimeout] == nil {
			mux.ServeHTTP(w, r)
			return
		}
		_, pattern := mux.Handler(r)
		d.pass(w, r, routeOf(pattern), mux)
	})
}

// pass lets one request through, or answers it.
func (d *Door) pass(w http.ResponseWriter, r *http.Request, route Route, next http.Handler) {
	if d.cfg.Keys == nil && !route.Work {
		next.ServeHTTP(w, r)
		return
	}
	p := &Pass{door: d}
	if d.cfg.Keys != nil && !d.open(route) {
		key, err := d.key(r, route)
		if err != nil {
			refuse(w, err)
			return
		}
		p.who, p.admin = key.Tenant, key.Admin
	}
	r.Header.Del("Authorization") // nobody behind has any use for it
	if !route.Work {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, p)))
		return
	}
	end, err := d.begin(w, p)
	if err != nil {
		refuse(w, err)
		return
	}
	defer end()
	ctx, cancel, err := WithTimeout(r)
	if err != nil {
		refuse(w, err)
		return
	}
	defer cancel()
	next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passKey{}, p)))
}

func (d *Door) open(route Route) bool {
	return route.Access == Open && !(d.cfg.ClosedMetrics && route.Pattern == metricsPattern)
}

const metricsPattern = "GET /metrics"

// key returns the key of a request, or why it may not reach the route. A key in the URL is none: URLs are logged.
func (d *Door) key(r *http.Request, route Route) (*tenant.Key, error) {
	given := r.Header["Authorization"]
	if len(given) == 0 {
		d.metrics.unauthorized.Inc()
		return nil, unauthorized("You didn't provide an API key. Send it in the header Authorization, as `Authorization: Bearer YOUR_KEY`.")
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	key := d.cfg.Keys().Find(strings.TrimSpace(text))
	if key == nil || len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		d.metrics.unauthorized.Inc()
		return nil, unauthorized("Incorrect API key provided.")
	}
	if key.Admin || route.Access == Keyed {
		return key, nil
	}
	d.metrics.unauthorized.Inc()
	return nil, &openai.Error{Status: http.StatusForbidden, Type: "PermissionDeniedError", Name: "insufficient_permissions",
		Message: "This API key may not do that: it takes a key with admin = true."}
}

func unauthorized(message string) error {
	return &openai.Error{Status: http.StatusUnauthorized, Type: "invalid_request_error", Name: "invalid_api_key", Message: message}
}

// begin holds a request to the limits of its tenant. The caller calls end when it has ended.
func (d *Door) begin(w http.ResponseWriter, p *Pass) (end func(), err error) {
	if p.who == nil {
		return func() {}, nil
	}
	lease, quota, err := d.meters.Begin(p.who, time.Now())
	tellQuota(w.Header(), quota)
	var over *tenant.LimitError
	if errors.As(err, &over) {
		d.metrics.refused(p.who.Name, string(over.Limit))
		e := openai.TooManyRequests(max(over.Retry, time.Second), "Rate limit reached: your key allows no %v. Please try again later.", over)
		e.Name = "rate_limit_exceeded"
		return nil, e
	}
	d.metrics.admitted(p.who.Name)
	p.lease = lease
	return lease.End, nil
}

// tellQuota says what is left of a rate, in the headers that clients of OpenAI know.
func tellQuota(h http.Header, q tenant.Quota) {
	if q.Limit == 0 {
		return
	}
	h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(q.Limit))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(q.Left))
	h.Set("X-Ratelimit-Reset-Requests", q.Full.Round(time.Millisecond).String())
}

// refuse answers a request whose body nobody reads.
func refuse(w http.ResponseWriter, err error) {
	if openai.AsError(err).Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	openai.WriteError(w, err)
}
