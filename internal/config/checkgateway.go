// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"time"

	"afterimage/internal/media"
)

func (c *checker) gateway() {
	if !c.is(RoleGateway, RoleUp) {
		return
	}
	g := &c.l.Config.Gateway
	c.address("gateway.listen", g.Listen)
	c.urls("gateway.encoders", g.Encoders)
	c.urls("gateway.prefills", g.Prefills)
	c.urls("gateway.decodes", g.Decodes)
	c.oneOf("gateway.routing", g.Routing, "affinity", "round-robin", "random")
	c.vllm()
	if c.role == RoleGateway && len(g.Prefills) == 0 && !c.l.Config.VLLM.Fronts() {
		c.fault("gateway.prefills", "missing; name at least one worker, e.g. http://127.0.0.1:8200, or run 'afterimage up'")
	}
	if c.role == RoleUp && len(g.Encoders)+len(g.Prefills)+len(g.Decodes) > 0 {
		c.fault("gateway.encoders", "up starts workers of its own; leave gateway.encoders, gateway.prefills and gateway.decodes empty, or run 'afterimage gateway'")
	}
	c.bytes("gateway.max_body_bytes", g.MaxBodyBytes, KiB)
	c.atLeast("gateway.max_images", int64(g.MaxImages), 0, "")
	c.fetching(g)
	c.duration("gateway.drain_notice", g.DrainNotice, 0)
	c.atLeast("gateway.repairs", int64(g.Repairs), 0, "")
	c.duration("gateway.silence_limit", g.SilenceLimit, time.Second)
	c.keys(g)
	c.atLeast("gateway.max_text_requests", int64(g.MaxTextRequests), 0, "")
	c.atLeast("gateway.max_image_requests", int64(g.MaxImageRequests), 0, "")
	c.atLeast("gateway.max_queued", int64(g.MaxQueued), 0, "")
	if g.MaxQueuedBytes != 0 && g.MaxQueuedBytes < g.MaxBodyBytes {
		c.fault("gateway.max_queued_bytes", "smaller than gateway.max_body_bytes, so that the largest requests could never wait; give at least %v, or 0 for no limit", g.MaxBodyBytes)
	}
	c.duration("gateway.max_wait", g.MaxWait, time.Millisecond)
}

// fetching checks what may be fetched.
func (c *checker) fetching(g *Gateway) {
	c.duration("gateway.fetch_timeout", g.FetchTimeout, 10*time.Millisecond)
	c.atLeast("gateway.fetch_revisit_entries", int64(g.RevisitEntries), 0, "")
	c.bytes("gateway.fetch_revisit_bytes", g.RevisitBytes, 0)
	c.bytes("gateway.fetch_budget_bytes", g.FetchBudget, c.l.Config.Media.MaxImageBytes)
	for key, list := range map[string][]string{"gateway.fetch_allow": g.FetchAllow, "gateway.fetch_deny": g.FetchDeny} {
		if _, err := media.ParseHosts(list); err != nil {
			c.fault(key, "%v", err)
		}
	}
	for _, port := range g.FetchPorts {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			c.fault("gateway.fetch_ports", "%q is no port; give numbers from 1 to 65535", port)
		}
	}
}
