// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"fmt"
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
	said := ""
	for wait := minDiscover; ; {
		var again <-chan time.Time
		if err := f.discoverOnce(ctx); err == nil {
			wait, said = minDiscover, ""
		} else {
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				f.cfg.Logger.Warn("relay: it is not known yet under which names Encoders store; until then they are asked for everything", "cause", err)
			}
			again, wait = time.After(wait), min(2*wait, maxDiscover)
		}
		select {
		case <-again:
		case <-f.encoderCame:
		case <-ctx.Done():
			return
		}
	}
}

// discoverOnce has an Encoder encode a small picture that nobody has seen, and looks for what it stored.
func (f *Front) discoverOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	e := f.reg.pick(Encode, RoundRobin, shunned{}, time.Now())
	if e == nil {
		return missing(Encode)
	}
	model, err := AskModel(ctx, f.client, e.URL)
	if err != nil {
		return fmt.Errorf("%s: %w", e.URL, err)
	}
	named, err := AskName(ctx, f.client, e.URL, model, FreshPicture(), false)
	if err != nil {
		return fmt.Errorf("%s: %w", e.URL, err)
	}
	n, err := ReadNamespace(ctx, f.cfg.Keys, named.Hash)
	if err == nil {
		err = f.cfg.Relay.SetNamespace(n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.URL, err)
	}
	f.cfg.Logger.Info("relay: names read off an Encoder", "url", e.URL, "namespace", n.String())
	return nil
}

// came notes that an Encoder may be another process than before.
func (f *Front) came(role Role) {
	if role != Encode {
		return
	}
	select {
	case f.encoderCame <- struct{}{}:
	default: // it is noted
	}
}
