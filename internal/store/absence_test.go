// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// failing is a Store whose calls end with err.
type failing struct {
	store.Store
	err   error
	tells bool
}

func (f *failing) Exists(_ context.Context, keys []embedding.Key) ([]store.State, error) {
	if f.err != nil {
		return nil, f.err
	}
	return make([]store.State, len(keys)), nil
}

func (f *failing) Get(_ context.Context, wants []store.Want) []store.Got {
	gots := make([]store.Got, len(wants))
	for i := range gots {
		if gots[i].Err = f.err; f.err == nil {
			gots[i].Err = store.ErrMiss
		}
	}
	return gots
}

func (f *failing) Capabilities() store.Capabilities { return store.Capabilities{Tells: f.tells} }

// Whoever meets it, that a Store is away is in the log once, and once that it is back; nothing of it where the Store
// says so itself, or where it was the caller that left.
func TestAbsenceIsToldOnce(t *testing.T) {
	for _, tells := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var text strings.Builder
			s := &failing{tells: tells}
			g, err := store.NewGuard(store.GuardConfig{Store: s, Logger: slog.New(slog.NewTextHandler(&text, nil))})
			if err != nil {
				t.Fatal(err)
			}
			call := func(err error) {
				s.err = err
				_, _ = g.Exists(t.Context(), []embedding.Key{"k"})
				g.Get(t.Context(), []store.Want{{Key: "k", Bytes: 1}, {Key: "l", Bytes: 1}})
			}
			said := func(away, back int) {
				t.Helper()
				if tells {
					away, back = 0, 0
				}
				if a, b := strings.Count(text.String(), "is away"), strings.Count(text.String(), "is back"); a != away || b != back {
					t.Errorf("away %d times, back %d times, want %d and %d:\n%s", a, b, away, back, text.String())
				}
			}
			call(nil)
			call(fmt.Errorf("%w: %w", store.ErrUnavailable, context.Canceled))
			said(0, 0)
			for range 3 {
				call(store.ErrUnavailable)
			}
			said(1, 0)
			call(fmt.Errorf("no class: %w", errors.ErrUnsupported)) // unavailable to a question
			call(nil)
			call(nil)
			said(1, 1)
			call(store.ErrUnavailable) // so soon, it is no news
			call(nil)
			said(1, 1)
			call(store.ErrUnavailable)
			time.Sleep(time.Minute)
			call(store.ErrUnavailable) // it lasts
			said(2, 1)
		})
	}
}
