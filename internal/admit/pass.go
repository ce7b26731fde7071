// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/tenant"
)

// Kind tells requests apart by what they take up.
type Kind int

// The kinds of requests.
const (
	Text   Kind = iota
	Images      // those with at least one media part
)

var kindNames = [...]string{"text", "images"}

// Pass is what a Door leaves in the context of a request that it let through. A nil Pass is that of a gateway
// without keys and without queues: it has no tenant and lets everything in. A Pass may be used from any goroutine.
type Pass struct {
	door  *Door
	who   *tenant.Tenant // nil without keys
	admin bool
	lease *tenant.Lease // nil without keys
}

type passKey struct{}

// From returns the pass of a request.
func From(ctx context.Context) *Pass {
	p, _ := ctx.Value(passKey{}).(*Pass)
	return p
}

// Tenant returns the name of the tenant, "" without keys.
func (p *Pass) Tenant() string {
	if p == nil || p.who == nil {
		return ""
	}
	return p.who.Name
}

// Sees says whether the client may read what is left of a request of a tenant: its own, or with an admin key any.
func (p *Pass) Sees(tenant string) bool {
	return p == nil || p.who == nil || p.admin || p.who.Name == tenant
}

// Chooses says whether the client may name the workers that its request goes to: a name that all ask for would undo
// what routing does for the other tenants. Without keys everybody may.
func (p *Pass) Chooses() bool {
	return p == nil || p.who == nil || p.admin || p.who.Chooses
}

// Salt keeps what the request leaves behind from requests of other salts; own is the salt that the request itself
// names, "" if it names none. It is empty where everything is shared.
func (p *Pass) Salt(own string) []byte {
	if p == nil || p.who == nil {
		return tenant.Narrow(nil, own)
	}
	return tenant.Narrow(p.who.Salt(), own)
}

// Enter waits for a place among the requests of a kind that are in work. bytes is the memory that the request holds
// while it waits: its body. After nil the caller calls leave when the request has ended. Errors are an *openai.Error,
// or the cause of ctx.
func (p *Pass) Enter(ctx context.Context, k Kind, bytes int64) (leave func(), err error) {
	if p == nil || p.door.queues[k] == nil {
		return func() {}, nil
	}
	weight := 1
	if p.who != nil {
		weight = p.who.Weight
	}
	leave, waited, err := p.door.queues[k].enter(ctx, p.Tenant(), weight, bytes)
	p.door.metrics.waited(k, waited)
	var busy *busyError
	switch {
	case err == nil:
		return leave, nil
	case errors.As(err, &busy):
		p.door.metrics.refused(p.Tenant(), outcomeOf(busy.reason))
		return nil, openai.Unavailable(busy.retry, "This gateway has more requests with %s in work than it can take on (%v). Please try again later.", kindWords[k], busy.reason)
	}
	p.door.metrics.refused(p.Tenant(), outcomeLeft)
	return nil, err
}

var kindWords = [...]string{"text alone", "images"}

// Images counts the bytes of the request's image files for the limit of its tenant.
func (p *Pass) Images(bytes int64) {
	if p != nil {
		p.lease.Images(bytes, time.Now())
	}
}
