// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
)

const mib = 1 << 20

// monolithic measures M6, which is not seeded: six servers that each encode, prefill and decode on one device.
func (r *Reassign) monolithic(ctx context.Context, out *Reassignment, t routes) error {
	if !r.wants("M6") || r.Model != nil {
		return nil
	}
	spec := rolesSpec{encoders: monoliths, prefills: monoliths, monolithic: true, delivery: "p2p", encoderArena: 128 * mib, encoderCache: 16 * mib, prefillArena: 128 * mib}
	return r.fleet(ctx, "M6", spec, func(f *roles) error {
		return r.phase(ctx, out, f, pass{name: "M6", routes: t.monolithic(monoliths), maxTokens: r.OutputTokens})
	})
}

// split is the fleet of EL and ES. Embeddings of all requests fit into the Store, those of one Encoder into its cache.
func (r *Reassign) split(shared bool) rolesSpec {
	all := int64(r.Requests*r.Images) * 3 * mib
	return rolesSpec{
		encoders: reassignEncoders, prefills: r.prefills(), store: shared, delivery: "p2p",
		storeBytes: all + 64*mib, encoderCache: all * 6 / 10, encoderArena: all*6/10 + 192*mib, prefillArena: 256 * mib,
	}
}

// local measures EL: Encoders with caches of their own. Since they are exchanged, no cache holds what it is asked for.
func (r *Reassign) local(ctx context.Context, out *Reassignment, t routes) error {
	if !r.wants("EL") {
		return nil
	}
	return r.fleet(ctx, "EL", r.split(false), func(f *roles) error {
		err := r.phase(ctx, out, f, pass{name: "EL seeding", routes: t, closed: 1, maxTokens: 1})
		if err == nil {
			err = r.phase(ctx, out, f, pass{name: "EL", routes: t.swapped(), maxTokens: r.OutputTokens})
		}
		return err
	})
}

// shared measures ES, and the same once more when the Encoders have everything: the ceiling.
func (r *Reassign) shared(ctx context.Context, out *Reassignment, t routes) error {
	if !r.wants("ES", "ideal") {
		return nil
	}
	return r.fleet(ctx, "ES", r.split(true), func(f *roles) error {
		err := r.phase(ctx, out, f, pass{name: "ES seeding", routes: t, closed: 1, maxTokens: 1})
		if err == nil {
			err = r.phase(ctx, out, f, pass{name: "ES", routes: t.swapped(), maxTokens: r.OutputTokens})
		}
		if err == nil && r.wants("ideal") {
			err = r.phase(ctx, out, f, pass{name: "ideal", routes: t.swapped(), maxTokens: r.OutputTokens})
		}
		return err
	})
}

// direct measures P/Ds that read the Store themselves. The seeding goes to other P/Ds than the measurement, so that
// what they keep is of no use to it; the third pass goes to the same ones, and finds all of it.
func (r *Reassign) direct(ctx context.Context, out *Reassignment, t routes) error {
	if !r.wants("direct", "resident") {
		return nil
	}
	spec := r.split(true)
	spec.delivery = "direct"
	kept := spec.storeBytes * 2 / int64(spec.prefills)
	spec.encoderArena, spec.encoderCache, spec.prefillArena, spec.residents = 320*mib, 64*mib, kept+256*mib, kept
	if spec.prefills == 1 { // there is no other P/D to seed
		spec.residents = 0
		return r.fleet(ctx, "direct", spec, func(f *roles) error { return r.directPasses(ctx, out, f, t, t, "direct") })
	}
	return r.fleet(ctx, "direct", spec, func(f *roles) error {
		return r.directPasses(ctx, out, f, t.turned(spec.prefills), t, "direct", "resident")
	})
}

func (r *Reassign) directPasses(ctx context.Context, out *Reassignment, f *roles, seed, t routes, names ...string) error {
	err := r.phase(ctx, out, f, pass{name: "direct seeding", routes: seed, closed: 1, maxTokens: 1})
	for _, name := range names {
		if err == nil && (name == "direct" || r.wants(name)) {
			err = r.phase(ctx, out, f, pass{name: name, routes: t.anyEncoder(), maxTokens: r.OutputTokens})
		}
	}
	return err
}
