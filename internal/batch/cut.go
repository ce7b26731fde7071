// SPDX-License-Identifier: Apache-2.0

package batch

// cut says how many entries of a run the next call takes, 0 when it must wait for more.
//
// A run is what lies between embeddings (tokens), or one embedding part (rows). A lone request decodes
// it in blocks of block entries and a rest. Pieces of a block give the same bits as the whole block as
// long as none of them has a single entry, which takes other kernels. So a piece takes at least two, and
// leaves none or two, unless the block has only one. done entries of the run are computed, known follow;
// complete says that the run ends there. allow is the most that the step can take; two are always allowed.
func cut(block, done, known, allow int, complete bool) int {
	room := block - done%block
	n := min(known, room)
	if n < room && !complete {
		n -= 2 // more may follow, and one must not be left alone
		if n < 2 {
			return 0
		}
	}
	take := max(allow, 2)
	switch {
	case take >= n:
		return n
	case n-take > 1:
		return take
	case take > 2:
		return take - 1
	}
	return n
}

// keep says how many of the leading entries that a sequence holds a prompt can take over, when m of them
// are the same. The m-th lies offset entries into its run, rest entries of the prompt's run follow it, and
// complete says that the run ends there. last is true when the prompt ends there: the last entry must be
// computed, for its logits. The entries that are computed anew follow the rule of cut, and those that
// are kept did.
func keep(block, m, offset, rest int, complete, last bool) int {
	at := offset % block
	if at == 0 && offset > 0 && last && rest == 0 {
		at = block
	}
	for ; at > 0; at-- {
		room := block - at
		left := min(rest, room)
		whole := room == 0 || left >= 2 || left == 0 && complete
		if at >= 2 && whole && !(last && rest == 0) {
			break
		}
		m--
		rest++
	}
	return m
}
