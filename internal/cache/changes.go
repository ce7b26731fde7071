// SPDX-License-Identifier: Apache-2.0

package cache

// MaxKeys is the most keys that Changes tells of. Together with MaxNews it bounds what an answer takes.
const MaxKeys = 1 << 16

// MaxNews is how many comings and goings a cache remembers, 16 bytes each. Who asks less often than they happen
// gets everything instead: 8 bytes for each entry.
const MaxNews = 4096

// Changes says what a cache holds, or how that differs from what it held, in sums of keys (embedding.Key.Sum).
type Changes struct {
	Version uint64 // counts comings and goings since New; what follows leads up to it
	// Whole says that In is all there is, whatever was there before: of more than MaxKeys those used latest.
	Whole bool
	In    []uint64 // sums of keys that are there
	Out   []uint64 // sums of keys that are not, without Whole
}

// news are the latest comings and goings, in a ring.
type news struct {
	version uint64 // how many there ever were
	ring    []novelty
}

type novelty struct {
	sum uint64
	in  bool
}

func (n *news) add(sum uint64, in bool) {
	if at := n.version % MaxNews; at < uint64(len(n.ring)) {
		n.ring[at] = novelty{sum, in}
	} else {
		n.ring = append(n.ring, novelty{sum, in})
	}
	n.version++
}

// Version returns Changes.Version of this moment: while it stays as it is, so does what the cache holds.
func (c *Cache) Version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.news.version
}

// Changes returns what came and left after version since, or everything, where that is too long ago, or has not come
// yet. It does not notice every version of another cache. A key that came and left again is told of once, as it is in the end.
func (c *Cache) Changes(since uint64) Changes {
	c.mu.Lock()
	out := Changes{Version: c.news.version}
	if since == 0 || since > out.Version || out.Version-since > MaxNews {
		out.Whole = true
		out.In = make([]uint64, 0, min(MaxKeys, len(c.entries)))
		for el := c.recent.Front(); el != nil && len(out.In) < MaxKeys; el = el.Next() {
			out.In = append(out.In, el.Value.(*entry).sum)
		}
		c.mu.Unlock()
		return out
	}
	latest := make([]novelty, 0, out.Version-since)
	for v := out.Version; v > since; v-- {
		latest = append(latest, c.news.ring[(v-1)%MaxNews])
	}
	c.mu.Unlock()
	told := make(map[uint64]struct{}, len(latest))
	for _, n := range latest { // the last word of each key comes first
		if _, ok := told[n.sum]; ok {
			continue
		}
		told[n.sum] = struct{}{}
		if n.in {
			out.In = append(out.In, n.sum)
		} else {
			out.Out = append(out.Out, n.sum)
		}
	}
	return out
}
