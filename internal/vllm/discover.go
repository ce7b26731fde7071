// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"afterimage/internal/embedding"
)

// Keys finds the keys of an identifier in the Store that Encoders share, whatever their namespaces.
type Keys interface {
	Find(ctx context.Context, id embedding.Identifier) ([]embedding.Key, error)
}

// What reading a namespace off an Encoder may take.
const (
	discoverTimeout = time.Minute // the encode call included, which may wait for others
	publishPause    = 100 * time.Millisecond
	maxPublishPause = 3 * time.Second
	minDiscover     = time.Second // after an attempt that failed, doubling
	maxDiscover     = time.Minute
)

// ReadNamespace returns the namespace under which an Encoder has stored what it calls hash, which has to be a name that
// nobody else has given. It waits for the object until ctx ends.
func ReadNamespace(ctx context.Context, keys Keys, hash string) (embedding.Namespace, error) {
	for pause := publishPause; ; pause = min(2*pause, maxPublishPause) {
		found, err := keys.Find(ctx, embedding.Identifier(hash))
		switch {
		case err != nil:
			return embedding.Namespace{}, err
		case len(found) == 1:
			return embedding.NamespaceOf(found[0], embedding.Identifier(hash))
		case len(found) > 1:
			return embedding.Namespace{}, fmt.Errorf("the Store has it under %d keys: %.200q, %.200q", len(found), found[0], found[1])
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return embedding.Namespace{}, fmt.Errorf("what it made is not in the Store (cross_encoder_cache is false there, or its Store is another): %w", ctx.Err())
		}
	}
}

// discover has the relay know under which namespace Encoders store, from now until ctx ends: an Encoder that comes, or
// comes back, may have another one.
func (f *Front) discover(ctx context.Context) {
	d := discovery{Front: f, read: map[string]reading{}}
	said := ""
	for wait := minDiscover; ; {
		var again <-chan time.Time
		if err := d.look(ctx); err == nil {
			wait, said = minDiscover, ""
		} else {
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				f.cfg.Logger.Warn("relay: it is not known yet under which names an Encoder stores; until one has told, they are asked for everything", "cause", err)
			}
			again, wait = time.After(wait), min(2*wait, maxDiscover)
		}
		select {
		case <-again:
		case <-f.arrivals.note:
		case <-ctx.Done():
			return
		}
	}
}

// discovery is what one goroutine has read off Encoders.
type discovery struct {
	*Front
	read map[string]reading // by URL
}

// reading is the namespace under which a process at a URL stores.
type reading struct {
	process
	names embedding.Namespace
}

// look reads the namespaces of Encoders that have come, and that of one of the others as long as none is known.
func (d *discovery) look(ctx context.Context) (first error) {
	for _, x := range d.arrivals.list() {
		if !d.reg.isLive(x.url) { // it is noted again when it is back
			d.arrivals.drop(x)
			continue
		}
		if err := d.lookAt(ctx, x.url); err == nil {
			d.arrivals.drop(x)
		} else {
			d.arrivals.failed(x)
			first = cmp.Or(first, err)
		}
	}
	if len(d.read) > 0 {
		return first
	}
	e := d.reg.pick(Encode, RoundRobin, shunned{}, time.Now())
	if e == nil {
		return cmp.Or(first, error(missing(Encode)))
	}
	return cmp.Or(first, d.lookAt(ctx, e.URL))
}

// lookAt has the Encoder at url encode a small picture that nobody has seen, and looks for what it stored. If it is the
// process that it was, what was read off it then still holds.
func (d *discovery) lookAt(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	p, err := askProcess(ctx, d.client, url)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	was, known := d.read[url]
	if known = known && p.start != "" && was.process == p; !known {
		if was, err = d.readOff(ctx, url, p); err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
	}
	if err := d.cfg.Relay.SetNamespace(was.names); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if known {
		return nil
	}
	maps.DeleteFunc(d.read, func(at string, _ reading) bool { return !d.reg.isLive(at) })
	d.read[url] = was
	d.cfg.Logger.Info("relay: names read off an Encoder", "url", url, "namespace", was.names.String())
	return nil
}

// readOff asks the process at url to encode, for its names.
func (d *discovery) readOff(ctx context.Context, url string, p process) (reading, error) {
	named, err := AskName(ctx, d.client, url, p.model, FreshPicture(), false)
	if err != nil {
		return reading{}, err
	}
	n, err := ReadNamespace(ctx, d.cfg.Keys, named.Hash)
	return reading{p, n}, err
}

// came notes that the Encoder at url may be another process than before.
func (f *Front) came(role Role, url string) {
	if role == Encode && f.arrivals != nil {
		f.arrivals.add(url)
	}
}
