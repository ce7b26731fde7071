// SPDX-License-Identifier: Apache-2.0

package quick

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultBudget is what Linux has an idle virtual CPU poll before it sleeps (haltpoll): on a core that is idle
// otherwise it is spent anyway.
const DefaultBudget = 50 * time.Microsecond

const (
	// vain is what a wait in vain takes off the credit, where one that paid adds 1: what it costs, a budget, and what
	// the other saves stand about so.
	vain = 3
	// maxCredit and minCredit bound what is remembered; at minCredit, 64 waits are not polled.
	maxCredit, minCredit = 6, -9
	// maxLeast is how long an answer may take to be waited for awake: beyond it, what that saves is little of the whole.
	maxLeast = 250 * time.Microsecond
)

// Policy is how the connections of a process poll, and what became of it. Any number of them share it, at once.
type Policy struct {
	budget     time.Duration
	paid, lost atomic.Uint64 // polled waits
}

// NewPolicy returns one that spends budget per wait. With a budget of 0 or less nobody polls, nor where one thread runs
// at a time: whoever is to answer would be kept from it.
func NewPolicy(budget time.Duration) *Policy {
	if runtime.NumCPU() < 2 || runtime.GOMAXPROCS(0) < 2 {
		budget = 0
	}
	return &Policy{budget: budget}
}

// Polled returns how many waits were polled, and ended so or did not.
func (p *Policy) Polled() (paid, lost uint64) { return p.paid.Load(), p.lost.Load() }

var descPolled = prometheus.NewDesc("afterimage_quick_polled_waits_total",
	"Waits for another process of this host that were spent awake, by outcome: paid (what was waited for came), vain.", []string{"outcome"}, nil)

// Describe implements prometheus.Collector.
func (p *Policy) Describe(ch chan<- *prometheus.Desc) { ch <- descPolled }

// Collect implements prometheus.Collector.
func (p *Policy) Collect(ch chan<- prometheus.Metric) {
	paid, lost := p.Polled()
	ch <- prometheus.MustNewConstMetric(descPolled, prometheus.CounterValue, float64(paid), "paid")
	ch <- prometheus.MustNewConstMetric(descPolled, prometheus.CounterValue, float64(lost), "vain")
}

// Poll decides for one connection. One goroutine at a time uses it. The zero value never polls.
type Poll struct {
	policy *Policy // nil never polls
	credit int
	skip   int // waits that are not polled
}

// Poll returns one for a connection.
func (p *Policy) Poll() Poll { return Poll{policy: p} }

// Wait calls ready until it returns true, and returns that, or false when what ready looks for is to be waited for
// asleep. least is how long the answer takes at least, which is waited for in addition to the budget.
func (p *Poll) Wait(least time.Duration, ready func() bool) bool {
	if p.policy == nil || p.policy.budget <= 0 || least > maxLeast {
		return false
	}
	if p.skip > 0 {
		p.skip--
		return false
	}
	for start := time.Now(); ; {
		if ready() {
			p.credit = min(p.credit+1, maxCredit)
			p.policy.paid.Add(1)
			return true
		}
		if time.Since(start) > least+p.policy.budget {
			break
		}
	}
	p.policy.lost.Add(1)
	if p.credit = max(p.credit-vain, minCredit); p.credit < 0 {
		p.skip = 1 << (2 * -p.credit / vain)
	}
	return false
}
