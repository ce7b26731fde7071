// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"maps"
	"strings"
	"syscall"
	"testing"

	"afterimage/internal/model"
	"afterimage/internal/testkit"
)

// moonFleet is a fleet on a real Mooncake cluster, and the answers that it gave while all was well.
type moonFleet struct {
	*upRun
	answers map[int64]string // by seed of the picture
}

// check asks about the pictures of seeds on an Encoder. Whatever is broken, each answer is what it was.
func (f *moonFleet) check(t *testing.T, encoder string, seeds ...int64) (from map[string]int) {
	t.Helper()
	from = map[string]int{}
	for _, seed := range seeds {
		a := f.mustAsk(t, encoder, noise(t, seed))
		if want, ok := f.answers[seed]; ok && a.Text != want || a.Text == "" {
			t.Errorf("picture %d on Encoder %s (%s): %q, want %q", seed, encoder, sources(a), a.Text, want)
		}
		f.answers[seed] = a.Text
		from[sources(a)]++
	}
	return from
}

// idle waits until the Encoders have all memory back from the Store.
func (f *moonFleet) idle(t *testing.T) {
	t.Helper()
	eventually(t, "all memory is back", func() bool {
		return f.count(t, "encoder-0", "afterimage_mooncake_quarantine_bytes", "") == 0 &&
			f.count(t, "encoder-1", "afterimage_mooncake_quarantine_bytes", "") == 0
	})
}

// reuse waits until what one Encoder encodes is found by the other, with new pictures from seed on. It returns
// the seed of one that was.
func (f *moonFleet) reuse(t *testing.T, seed int64) int64 {
	t.Helper()
	eventually(t, "work is reused", func() bool {
		seed++
		f.check(t, "0", seed)
		return f.check(t, "1", seed)["store"] == 1
	})
	return seed
}

func seeds(from, n int64) (out []int64) {
	for i := range n {
		out = append(out, from+i)
	}
	return out
}

// TestUpOutlivesMooncake breaks one part of a real cluster after the other under a real fleet. Every
// request is answered, and rightly; memory comes back; the log says once what happened; and nothing is
// restarted but what was killed.
func TestUpOutlivesMooncake(t *testing.T) {
	u := startUp(t, append(pair(t, model.MLP), "--store", "mooncake")...)
	f := &moonFleet{upRun: u, answers: map[int64]string{}}
	node, _ := testkit.StartMooncakeNode(t, u.address["mooncake-master"], 256<<20)

	// A storage node that dies takes its objects with it, and for 5 s more the master offers them.
	const pictures = 24
	f.check(t, "0", seeds(0, pictures)...)
	u.stored(t, "encoder-0", pictures)
	before := u.roles()
	node.Kill()
	f.check(t, "1", seeds(0, pictures)...)
	if lost := u.count(t, "encoder-1", "afterimage_mooncake_codes_total", "-800"); lost == 0 {
		t.Error("no read met the dead node")
	}
	f.idle(t)
	f.reuse(t, 1000)
	if after := u.roles(); !maps.Equal(before, after) {
		t.Errorf("a storage node died, and processes became %v, were %v", after, before)
	}
	if n := u.said("encoder-1", "its memory is in quarantine"); n != 1 {
		t.Errorf("the log of encoder-1 tells of the dead node %d times, want once", n)
	}

	// The master is away for a while, and has forgotten all objects when it is back.
	told := map[string]int{"encoder-0": u.told("encoder-0"), "encoder-1": u.told("encoder-1")}
	release := u.hold(t, "mooncake-master")
	f.check(t, "0", seeds(0, 4)...)
	eventually(t, "both Encoders notice", func() bool {
		return u.count(t, "encoder-0", "afterimage_mooncake_breaker_open", "") == 1 &&
			u.count(t, "encoder-1", "afterimage_mooncake_breaker_open", "") == 1
	})
	if from := f.check(t, "1", seeds(2000, 4)...); from["encoded"] != 4 {
		t.Errorf("without a master new pictures come from %v", from)
	}
	release()
	eventually(t, "both Encoders use the Store again", func() bool {
		return u.count(t, "encoder-0", "afterimage_mooncake_breaker_open", "") == 0 &&
			u.count(t, "encoder-1", "afterimage_mooncake_breaker_open", "") == 0
	})
	for _, name := range []string{"encoder-0", "encoder-1"} {
		if away, back := u.said(name, "the Store is away"), u.said(name, "mooncake: the Store is back"); away != 1 || back != 1 {
			t.Errorf("the log of %s says %d times that the master is away and %d times that it is back, want once each", name, away, back)
		}
		if n := u.told(name) - told[name]; n != 2 {
			t.Errorf("%d lines of %s tell of the outage and its end, want one of each", n, name)
		}
	}
	f.reuse(t, 3000)
	f.idle(t)

	// A worker is killed while the cluster has its arena.
	u.kill(t, "encoder-1")
	f.check(t, "", seeds(0, 8)...)
	eventually(t, "the Encoder is back", func() bool {
		_, err := u.ask(t.Context(), "1", noise(t, 0))
		return err == nil
	})
	shared := f.reuse(t, 4000)
	f.idle(t)
	// A P/D that starts anew has nothing, and reads the cluster itself.
	u.kill(t, "prefill-0")
	eventually(t, "the P/D is back", func() bool {
		_, err := u.ask(t.Context(), "", noise(t, shared))
		return err == nil
	})
	f.check(t, "", shared)
	if n := u.count(t, "prefill-0", "afterimage_prefill_items_total", "copy"); n != 1 {
		t.Errorf("the P/D read %v embeddings from the cluster, want 1", n)
	}
	u.signalGroup(t, syscall.SIGINT)
}

// told counts the lines of a process's log that tell of the Store, whichever part of the process wrote them.
func (u *upRun) told(name string) (n int) {
	for _, part := range []string{"mooncake", "store", "resolve", "publish"} {
		n += u.said(name, `msg="`+part+`: `)
	}
	return n
}

// said counts the lines of a process's log that hold text.
func (u *upRun) said(name, text string) (n int) {
	for line := range strings.Lines(u.errs.String()) {
		if strings.HasPrefix(line, name+" ") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}
