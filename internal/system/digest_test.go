// SPDX-License-Identifier: Apache-2.0

package system

import (
	"slices"
	"testing"

	"afterimage/internal/embedding"
)

// TestNoShortDigestAnywhere (K03) finds two pictures whose identifiers share their last four hex digits,
// and two that share the first four, and asks about them in turn: whoever keys on a part of an
// identifier, in a cache, the Store, a flight or the prompt, gives the second the first one's answer.
func TestNoShortDigestAnywhere(t *testing.T) {
	for name, cut := range map[string]func(embedding.Identifier) string{
		"last four digits":  func(id embedding.Identifier) string { return string(id[len(id)-4:]) },
		"first four digits": func(id embedding.Identifier) string { return string(id[:4]) },
	} {
		f := newFleet(t, nil)
		a, b := collide(t, cut)
		if a, b := f.key(t, a), f.key(t, b); a == b || cut(embedding.Identifier(a)[len(a)-64:]) != cut(embedding.Identifier(b)[len(b)-64:]) {
			t.Fatalf("%s: the pair does not collide: %s, %s", name, a, b)
		}
		fresh := newFleet(t, nil)
		wantA, wantB := fresh.ask(t, "0", a).Text, fresh.ask(t, "1", b).Text
		if wantA == wantB {
			t.Fatalf("%s: the two pictures have one answer, which proves nothing", name)
		}
		gotA := f.ask(t, "0", a).Text
		f.published(t, 0)
		second := f.ask(t, "1", b)
		f.published(t, 1)
		both := f.ask(t, "0", a, b)
		if gotA != wantA || second.Text != wantB {
			t.Errorf("%s: answers %q and %q, want %q and %q", name, gotA, second.Text, wantA, wantB)
		}
		if got := sources(second) + ", " + sources(both); got != "encoded, local store" {
			t.Errorf("%s: sources %q, want encoded, local store", name, got)
		}
		if got := f.encodes(t); got != 2 {
			t.Errorf("%s: %v encodes, want 2", name, got)
		}
	}
}

// collide returns files of two different pictures whose identifiers are equal under cut. By the birthday
// bound some hundred files do.
func collide(t *testing.T, cut func(embedding.Identifier) string) (a, b []byte) {
	t.Helper()
	rules := embedding.Processing{Background: embedding.DefaultBackground}
	pictures := [2][]byte{picture(t, 40, 40, 201), picture(t, 40, 40, 202)}
	var seen [2]map[string][]byte
	seen[0], seen[1] = map[string][]byte{}, map[string][]byte{}
	for i := range 1 << 16 {
		// Bytes behind its end make another file of a picture.
		file := append(slices.Clone(pictures[i%2]), byte(i), byte(i>>8))
		short := cut(embedding.NewIdentifier(embedding.DigestOf(file), rules, false, nil))
		if other, ok := seen[1-i%2][short]; ok {
			return other, file
		}
		seen[i%2][short] = file
	}
	t.Fatal("no two identifiers share four digits")
	return nil, nil
}
