// SPDX-License-Identifier: Apache-2.0

package vllm

import "slices"

// Role is the stage of a request that an instance serves.
type Role string

// The roles. PrefillDecode serves both stages and is not mixed with instances of one.
const (
	Encode        Role = "encode"
	Prefill       Role = "prefill"
	Decode        Role = "decode"
	PrefillDecode Role = "prefill_decode"
)

// Instance is one worker as it is registered.
type Instance struct {
	Role Role
	URL  string // base URL without a slash at its end
	// Addresses are where Encoders reach the consumer's control channel, one per data-parallel replica;
	// none if the connector needs none.
	Addresses []string
	Replicas  int // data-parallel replicas behind URL, at least 1
}

func (i Instance) equal(o Instance) bool {
	return i.Role == o.Role && i.URL == o.URL && i.Replicas == o.Replicas && slices.Equal(i.Addresses, o.Addresses)
}

// Roster is what the API shows of one role.
type Roster struct {
	Live    []string `json:"live"`
	Evicted []string `json:"evicted"`
}

// Status is the whole roster.
type Status struct {
	Encode        Roster `json:"encode"`
	Prefill       Roster `json:"prefill"`
	Decode        Roster `json:"decode"`
	PrefillDecode Roster `json:"prefill_decode"`
}

// Status returns the URLs of all instances.
func (r *Registry) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s Status
	for role, to := range s.byRole() {
		*to = Roster{Live: urls(r.live, role), Evicted: urls(r.evicted, role)}
	}
	return s
}

func (s *Status) byRole() map[Role]*Roster {
	return map[Role]*Roster{Encode: &s.Encode, Prefill: &s.Prefill, Decode: &s.Decode, PrefillDecode: &s.PrefillDecode}
}

func urls(list []*entry, role Role) []string {
	out := []string{}
	for _, e := range list {
		if e.Role == role {
			out = append(out, e.URL)
		}
	}
	return out
}
