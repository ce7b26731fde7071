// SPDX-License-Identifier: Apache-2.0

package admit

import "strings"

// Access says who may reach a route once there are keys.
type Access int

// From the least to the most.
const (
	Keyed Access = iota // whoever has a key; what no table has is this
	Admin               // whoever has a key with admin = true
	Open                // anybody
)

// Route is a row of the table of routes.
type Route struct {
	Pattern string // as the mux has it; one that ends in a star stands for all that begin alike
	Access  Access
	Work    bool   // it is held to the limits of its tenant
	Why     string // it is not Keyed
}

// Routes are the routes of gateways that are not simply Keyed. docs/operations.md shows the same table.
var Routes = []Route{
	{"GET /health", Open, false, "load balancers have no key"},
	{"GET /livez", Open, false, "supervisors have no key"},
	{"GET /readyz", Open, false, "load balancers have no key"},
	{"GET /version", Open, false, "as vLLM has it"},
	{"GET /metrics", Open, false, "as vLLM has it; it names tenants, so `gateway.open_metrics = false` asks for an admin key"},
	{"GET /{$}", Open, false, "the page has no data in it; it asks for a key"},
	{"GET /dashboard/*", Open, false, "files of the page"},
	{"POST /instances", Open, false, "vLLM workers register with a key of their own, ADMIN_API_KEY"},
	{"DELETE /instances", Open, false, "likewise"},
	{"GET /instances", Admin, false, "it shows addresses of workers"},
	{"GET /v1/fleet", Admin, false, "it shows addresses of workers"},
	{"GET /v1/live", Admin, false, "it shows requests of all tenants"},
	{"GET /v1/thumbnails/{identifier}", Admin, false, "it shows pictures of all tenants; there are none without `gateway.dashboard_thumbnails`"},
	{"POST /start_profile", Admin, false, "it slows the whole fleet down"},
	{"POST /stop_profile", Admin, false, "likewise"},
	{"POST /v1/chat/completions", Keyed, true, ""},
	{"POST /v1/completions", Keyed, true, ""},
	{"POST /v1/warm", Keyed, true, ""},
}

// byPattern are the rows of whole patterns, and those that stand for all that begin alike.
var byPattern, byBeginning = func() (whole map[string]Route, beginning []Route) {
	whole = map[string]Route{}
	for _, r := range Routes {
		if begin, all := strings.CutSuffix(r.Pattern, "*"); all {
			r.Pattern = begin
			beginning = append(beginning, r)
			continue
		}
		whole[r.Pattern] = r
	}
	return whole, beginning
}()

// routeOf returns the row of a pattern.
func routeOf(pattern string) Route {
	if r, ok := byPattern[pattern]; ok {
		return r
	}
	for _, r := range byBeginning {
		if strings.HasPrefix(pattern, r.Pattern) {
			return r
		}
	}
	return Route{Pattern: pattern}
}
