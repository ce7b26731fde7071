// SPDX-License-Identifier: Apache-2.0

package batch

import "slices"

// view is what place and share see of a request.
type view struct {
	id     int  // place in the order of arrival, which requests keep when they are preempted
	held   bool // it has a sequence
	decode bool // its prompt is computed; it appends one token per step
	cells  int  // cells that it holds
	prompt int  // cells that its prompt takes at most; a request needs one more to answer
	ready  int  // entries that could be prefilled without waiting; 0 means that an embedding is missing
	least  int  // entries that get it on; more than a few where rows cannot be divided
	served int  // step in which it was prefilled last
}

// reserve is the number of cells that must be kept free for v while it is in a sequence.
func (v view) reserve() int {
	if v.decode {
		return v.cells + 1
	}
	return max(v.cells, v.prompt) + 1
}

// waits says that v cannot do anything until an embedding arrives.
func (v view) waits() bool { return !v.decode && v.ready == 0 }

// space is the memory that place gives out.
type space struct {
	sequences, cells int
}

// moves is what place decides, by view.id.
type moves struct {
	preempt []int
	admit   []int
}

// place decides who gets a sequence and who gives one up. views are in order of arrival.
//
// Those that hold a sequence keep it as long as the memory suffices for all of them to take their next
// step; else the last to come gives up first, those that wait for embeddings before those that work. A
// request that waits gives way to one that can work also when only a sequence is missing; it gets one
// again when its embedding is there.
func place(s space, views []view) moves {
	p := placing{space: s}
	for _, v := range views {
		if v.held {
			p.held = append(p.held, v)
			p.used += v.reserve()
		}
	}
	for p.used > s.cells && len(p.held) > 1 {
		p.release(p.victim(false))
	}
	for _, v := range views {
		if v.held || v.waits() {
			continue
		}
		for !p.fits(v) {
			i := p.victim(true)
			if i < 0 {
				return p.moves
			}
			p.release(i)
		}
		p.held = append(p.held, v)
		p.used += v.reserve()
		p.admit = append(p.admit, v.id)
	}
	return p.moves
}

// placing is place at work.
type placing struct {
	space
	moves
	held []view
	used int // cells that are kept free for held
}

// fits says whether v can get a sequence. One request alone always fits.
func (p *placing) fits(v view) bool {
	return len(p.held) < p.sequences && (len(p.held) == 0 || p.used+v.reserve() <= p.cells)
}

func (p *placing) release(i int) {
	p.used -= p.held[i].reserve()
	p.preempt = append(p.preempt, p.held[i].id)
	p.held = slices.Delete(p.held, i, i+1)
}

// victim returns the index of the request that gives up first: one that waits for embeddings, unless only
// those may, of several the last to come. It is -1 when there is none.
func (p *placing) victim(waitingOnly bool) int {
	best := -1
	for i, v := range p.held {
		switch {
		case waitingOnly && !v.waits():
		case best < 0, v.waits() && !p.held[best].waits(), v.waits() == p.held[best].waits() && v.id > p.held[best].id:
			best = i
		}
	}
	return best
}

// allowance is how many entries of its prompt a request may prefill in a step.
type allowance struct{ id, n int }

// share divides the budget of one step between the prompts in work: in turns, whoever has not been served
// for longest first. The first gets at least what gets it on.
func share(budget int, views []view) []allowance {
	turn := slices.DeleteFunc(slices.Clone(views), func(v view) bool { return !v.held || v.decode || v.ready == 0 })
	slices.SortStableFunc(turn, func(a, b view) int {
		if a.served != b.served {
			return a.served - b.served
		}
		return a.id - b.id
	})
	var out []allowance
	for i, v := range turn {
		n := min(v.ready, budget)
		if i == 0 {
			n = max(n, v.least)
		}
		if n < v.least {
			break // its turn comes: it is the first once all before it were served
		}
		out = append(out, allowance{v.id, n})
		budget -= n
	}
	return out
}
