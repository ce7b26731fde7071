// SPDX-License-Identifier: Apache-2.0

package ram

import "testing"

// world is the memory that a client and the Store share, for one entry and one slot, and where both are in
// what they do. It is a model of tryLocked and of hideLocked, forgetLocked and showLocked, one step per
// access to shared memory.
type world struct {
	state  int // of the entry; odd is shown
	object int // that the entry is of
	number int // of the allowance; counts to 1 where the real one counts to 65535
	open   bool
	slot   [2]int // object and number; object 0 is nothing

	client struct {
		at           int
		seen, object int
		number       int
		pinned       bool
		left         int // tries
	}
	store struct {
		at     int
		number int    // of the allowance that was closed
		held   [2]int // the slot that was taken note of
		left   int    // evictions
	}
	freed [5]bool
}

// skip leaves out a part of the protocol, to see that it is needed.
type skip int

const (
	skipNothing skip = iota
	skipSecondLook
	skipSecondAllowance
	skipHideFirst
)

// clientStep does the client's next access; false at its end.
func (w *world) clientStep(s skip) bool {
	c := &w.client
	fail := func() { c.at, c.pinned = 7, false }
	switch c.at {
	case 0:
		if c.left == 0 {
			return false
		}
		c.left--
		c.number = w.number
		if c.at = 1; !w.open {
			c.at = 0
		}
	case 1:
		c.seen = w.state
		if c.at = 2; c.seen%2 == 0 {
			c.at = 0
		}
	case 2:
		c.object, c.at = w.object, 3
	case 3:
		if c.at = 4; w.state != c.seen {
			c.at = 0
		}
	case 4:
		w.slot, c.at = [2]int{c.object, c.number}, 5
	case 5:
		if c.at = 6; s != skipSecondAllowance && (w.number != c.number || !w.open) {
			fail()
		}
	case 6:
		if w.state != c.seen && s != skipSecondLook {
			fail()
			break
		}
		c.at, c.pinned = 7, true
	case 7: // reads until here
		w.slot, c.pinned, c.at = [2]int{}, false, 0
	}
	return true
}

// storeStep does the Store's next access; false at its end. It evicts the object of the entry, unless that is
// held, and shows the next one there.
func (w *world) storeStep(s skip) bool {
	o := &w.store
	hide := func() { w.state++ }
	switch o.at {
	case 0:
		if o.left == 0 {
			return false
		}
		o.left--
		if o.at = 1; s != skipHideFirst {
			hide()
		}
	case 1:
		o.number = w.number
		w.number, w.open, o.at = 1-w.number, false, 2
	case 2:
		if w.slot != o.held && w.slot[1] != o.number {
			o.held = [2]int{}
		} else {
			o.held = w.slot
		}
		o.at = 3
	case 3:
		w.open, o.at = true, 4
	case 4:
		if s == skipHideFirst {
			hide()
		}
		if o.at = 5; o.held[0] != w.object {
			w.freed[w.object] = true
			w.object++
		}
	case 5: // shows the next object, or the same again
		w.state++
		o.at = 0
	}
	return true
}

// explore runs every order of the steps, and reports whether one of them lets a client read what was freed.
func explore(w world, s skip, known map[world]bool) (bad bool) {
	if known[w] {
		return false
	}
	known[w] = true
	if w.client.pinned && w.freed[w.client.object] {
		return true
	}
	for _, step := range []func(*world, skip) bool{(*world).clientStep, (*world).storeStep} {
		if next := w; step(&next, s) && explore(next, s, known) {
			return true
		}
	}
	return false
}

// Whatever the order of what a client and the Store do, nothing that is pinned is freed; and no part of the
// protocol can be left out.
func TestPinProtocol(t *testing.T) {
	for name, c := range map[string]struct {
		skip skip
		bad  bool
	}{
		"as it is":                                {skipNothing, false},
		"without a second look at the entry":      {skipSecondLook, true},
		"without a second look at the allowance":  {skipSecondAllowance, true},
		"with the slots read before it is hidden": {skipHideFirst, true},
	} {
		w := world{state: 1, object: 1, open: true}
		w.client.left, w.store.left = 3, 3
		known := map[world]bool{}
		if bad := explore(w, c.skip, known); bad != c.bad {
			t.Errorf("%s: something that is pinned may be freed: %v, want %v", name, bad, c.bad)
		}
		t.Logf("%s: %d states", name, len(known))
	}
}
