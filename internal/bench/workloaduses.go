// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"afterimage/internal/embedding"
	"afterimage/internal/route"
	"afterimage/internal/sim"
)

// use is an image of a request, and the Encoder that it goes to; -1 leaves that to routing.
type use struct{ image, encoder int }

// seeds returns every image once, with the Encoder that is to have it.
func (w *Workloads) seeds(ctx context.Context, f *roles, workload, policy string) ([]use, error) {
	r := rand.New(rand.NewPCG(w.Seed, 2))
	out := make([]use, w.Distinct)
	for i := range out {
		out[i] = use{i, r.IntN(len(f.encoders))}
		if policy == "affinity" || policy == "both" {
			out[i].encoder = -1
		}
	}
	if workload != "reassign" || out[0].encoder >= 0 {
		return out, nil
	}
	// With affinity, images that move are those whose names are the other Encoder's.
	owners, err := w.owners(ctx, f)
	for i := range owners {
		out[i].encoder = 1 - owners[i]
	}
	return out, err
}

// owners returns the Encoder that the gateway's affinity gives each image to that none holds.
func (r *Reassign) owners(ctx context.Context, f *roles) ([]int, error) {
	var fleet struct {
		Encoders []struct {
			Announcement struct {
				Name       string
				Processing *embedding.Processing
			}
		}
	}
	b, err := get(ctx, f.gateway+"/v1/fleet")
	if err == nil {
		err = json.Unmarshal(b, &fleet)
	}
	if err != nil || len(fleet.Encoders) == 0 || fleet.Encoders[0].Announcement.Processing == nil {
		return nil, fmt.Errorf("bench: the gateway does not say how images are named: %w", err)
	}
	var peers []route.Peer
	for _, e := range fleet.Encoders {
		peers = append(peers, route.Peer{Name: e.Announcement.Name, Ready: true})
	}
	owners := make([]int, len(r.pictures))
	for i, url := range r.pictures {
		file, err := base64.StdEncoding.DecodeString(string(url[len("data:image/png;base64,"):]))
		if err != nil {
			return nil, err
		}
		id := embedding.NewIdentifier(embedding.DigestOf(file), *fleet.Encoders[0].Announcement.Processing, false, nil)
		owners[i] = route.Rank(string(id), peers)[0]
	}
	return owners, nil
}

// hotShare is the exponent of a hot spot's popularity: with 48 images, a third of all uses are of the first.
const hotShare = 1.5

// uses returns the images of all requests, after the event.
func (w *Workloads) uses(f *roles, workload, policy string, seeds []use) []use {
	r := rand.New(rand.NewPCG(w.Seed, 3))
	popularity := sim.Popularity{Kind: sim.Even, Distinct: w.Distinct}
	if workload == "hot-spot" {
		popularity = sim.Popularity{Kind: sim.Zipf, S: hotShare, Distinct: w.Distinct}
	}
	draw, err := sim.NewSampler(popularity, w.Seed)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	out := make([]use, w.Requests*w.Images)
	for i := range out {
		image := int(draw.Next())
		out[i] = use{image, -1}
		switch {
		case policy == "affinity" || policy == "both":
		case workload == "reassign":
			out[i].encoder = 1 - seeds[image].encoder
		default:
			out[i].encoder = r.IntN(len(f.encoders))
		}
	}
	return out
}
