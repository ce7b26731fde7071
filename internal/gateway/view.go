// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// viewed is how many requests and images a View holds at most.
const viewed = 60

// View is what people may see of a gateway at one moment. It holds no content of requests, no names that
// clients gave them and no addresses.
type View struct {
	// Revision grows with every change of a request; View takes it to tell what is new.
	Revision uint64        `json:"revision"`
	Encoders []Member      `json:"encoders"`
	Prefills []Member      `json:"prefills"`
	Decodes  []Member      `json:"decodes,omitempty"`
	Totals   Totals        `json:"totals"`
	Requests []SeenRequest `json:"requests"` // the latest that changed, oldest first
	Images   []SeenImage   `json:"images"`   // most used first
	// Thumbnails says that there are small pictures of images, each at /v1/thumbnails/ and its identifier.
	Thumbnails bool `json:"thumbnails,omitempty"`
}

// Member is a worker of the fleet.
type Member struct {
	Name     string `json:"name"`
	Up       bool   `json:"up"`
	Why      string `json:"why,omitempty"` // why it is not up
	Model    string `json:"model,omitempty"`
	Version  string `json:"version,omitempty"`
	Modelled bool   `json:"modelled,omitempty"`
	Backend  string `json:"backend,omitempty"` // what computes
	Running  int    `json:"running,omitempty"` // pictures at an Encoder, else requests
	Waiting  int    `json:"waiting,omitempty"`
	// P/D only.
	Context   int   `json:"context,omitempty"`
	PoolBytes int64 `json:"pool_bytes,omitempty"`
}

// Totals count since the gateway started.
type Totals struct {
	Requests uint64                    `json:"requests"` // ended ones
	Failed   uint64                    `json:"failed"`   // of them, without an answer
	Images   uint64                    `json:"images"`   // distinct images of requests
	Bytes    uint64                    `json:"bytes"`    // of their embeddings
	Sources  map[control.Source]uint64 `json:"sources"`  // images by where the embedding came from
}

// SeenRequest is a trace under a number of the gateway's own.
type SeenRequest struct {
	Number uint64    `json:"number"` // grows by one per request
	Begun  time.Time `json:"begun"`
	control.Trace
}

// SeenImage is what the gateway remembers of an image.
type SeenImage struct {
	Identifier embedding.Identifier      `json:"identifier"`
	Rows       int                       `json:"rows"`
	Bytes      int                       `json:"bytes"`
	Uses       uint64                    `json:"uses"`
	Sources    map[control.Source]uint64 `json:"sources"`
	Last       time.Time                 `json:"last"`
}

// View shows the fleet, the images used most, and those of the latest requests that changed after revision
// since; 0 is all.
func (g *Gateway) View(since uint64) View {
	snap := g.fleet.snapshot()
	v := View{Encoders: members(snap.Encoders), Prefills: members(snap.Prefills), Decodes: members(snap.Decodes), Thumbnails: g.thumbnails != nil}
	v.Requests, v.Revision = g.traces.changed(since)
	v.Totals, v.Images = g.seen.view()
	return v
}

// members hides the addresses, which faults may hold, too.
func members(ws []worker) []Member {
	out := make([]Member, len(ws))
	for i, w := range ws {
		out[i] = Member{
			Name: w.Seen.Name, Up: w.Up, Model: w.Seen.Model, Version: w.Seen.Version, Modelled: w.Seen.Modelled, Backend: w.Seen.Backend,
			Running: w.Seen.Running, Waiting: w.Seen.Waiting, Context: w.Seen.Context, PoolBytes: w.Seen.PoolBytes,
		}
		if !w.Up {
			out[i].Why = w.reason()
		}
	}
	return out
}

// reason says in a word why w takes no requests.
func (w worker) reason() string {
	switch {
	case w.Mismatch:
		return "does not fit the rest of the fleet"
	case w.Known && !w.Seen.Ready:
		return "not ready"
	}
	return "does not answer"
}

// changed returns the latest requests that changed after revision since, oldest first, and the revision
// that they show.
func (ts *traces) changed(since uint64) ([]SeenRequest, uint64) {
	at := ts.revision.Load() // before the look: what changes meanwhile is told again
	out := []SeenRequest{}
	for _, t := range ts.latest(viewed) {
		if t.revision.Load() <= since {
			continue
		}
		r := SeenRequest{Number: t.number, Begun: t.start, Trace: t.copy()}
		r.Request = "" // a client may have put anything there
		if r.Error != "" {
			r.Error = "failed"
		}
		out = append(out, r)
	}
	slices.Reverse(out)
	return out, at
}

// latest returns up to n requests, newest first.
func (ts *traces) latest(n int) []*trace {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var out []*trace
	for i := 1; i <= min(n, len(ts.ring)); i++ {
		name := ts.ring[(ts.next-i+len(ts.ring))%len(ts.ring)]
		if t, ok := ts.byName[name]; ok {
			out = append(out, t)
		}
	}
	return out
}
