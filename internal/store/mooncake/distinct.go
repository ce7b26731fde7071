// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"slices"

	"afterimage/internal/embedding"
)

// scanned is how many keys of a batch are compared with each other; beyond, a map is faster.
const scanned = 16

// distinct numbers the keys of a batch in the order in which they first appear. The zero value is usable.
type distinct struct {
	keys []embedding.Key
	at   map[embedding.Key]int // of keys; nil up to scanned
}

// number returns the number of k, and whether k appears for the first time.
func (d *distinct) number(k embedding.Key) (n int, first bool) {
	if d.at == nil {
		if n = slices.Index(d.keys, k); n >= 0 {
			return n, false
		}
	} else if n, ok := d.at[k]; ok {
		return n, false
	}
	n = len(d.keys)
	d.keys = append(d.keys, k)
	switch {
	case d.at != nil:
		d.at[k] = n
	case len(d.keys) > scanned:
		d.at = make(map[embedding.Key]int, 2*len(d.keys))
		for i, k := range d.keys {
			d.at[k] = i
		}
	}
	return n, true
}
