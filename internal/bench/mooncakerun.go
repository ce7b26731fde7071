// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
)

// mooncakeRun measures one size and count.
type mooncakeRun struct {
	*mooncakeRig
	rounds  Rounds
	name    string
	n, size int
	o       *objects
	sums    []string // SHA-256 of the values
	ids     []string
	rows    []Row
}

// measure starts a cluster, measures every size and count, which returns the ratio to the dummy client, and
// what comes last.
func (b MooncakeBench) measure(ctx context.Context, name string, each func(*mooncakeRun, context.Context) (float64, error),
	last func(*mooncakeRig, *progress) ([]Row, error)) (rep Report, err error) {
	p := newProgress(b.Progress)
	defer p.end()
	defer func() {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // that is why parts failed
		}
	}()
	rig, err := b.start(ctx, p)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	rep = Report{Name: name + " --store mooncake", Note: rig.note()}
	var ratios []float64
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			x := b.run(rig, n, size)
			p.step("%s", x.name)
			ratio, err := each(x, ctx)
			if err != nil {
				return rep, err
			}
			rep.Rows, ratios = append(rep.Rows, x.rows...), append(ratios, ratio)
		}
	}
	rows, err := last(rig, p)
	rep.Rows = append(append(rep.Rows, rig.meanRow(ratios)), rows...)
	return rep, err
}

// note says what was run.
func (r *mooncakeRig) note() string {
	return fmt.Sprintf("Mooncake %s, master and two mooncake_clients on this host, TCP loopback between nodes; objects of format v3; "+
		"median of the rounds' medians; %s", r.local.Stats().Release, Machine())
}

func (b MooncakeBench) run(rig *mooncakeRig, n, size int) *mooncakeRun {
	rounds := b.Rounds
	// Of the smaller ones as many as last for seconds: machines have slow spells of tenths of one.
	if bytes := n * size; bytes > nodeFrom*8 { // up to a tenth of a second each
		rounds.Warmup, rounds.Samples = max(1, rounds.Warmup/8), max(1, rounds.Samples/8)
	}
	return &mooncakeRun{mooncakeRig: rig, rounds: rounds, name: fmt.Sprintf("%dx%s", n, sizeName(size)), n: n, size: size}
}

// rowsOf returns how many rows an object of size bytes has.
func rowsOf(size int) int { return size / (colsV3 * embedding.BFloat16.Bytes()) }

// make builds the objects of a case, which are named after purpose.
func (x *mooncakeRun) make(purpose string) (*objects, error) {
	o, rows := &objects{}, rowsOf(x.size)
	m := embedding.Meta{Rows: rows, Cols: colsV3, DType: embedding.BFloat16}
	x.ids, x.sums = nil, nil
	for i := range x.n {
		x.ids = append(x.ids, fmt.Sprintf("%s/%s/%d", purpose, x.name, i))
		key := benchNamespace.Key(embedding.Identifier(x.ids[i]))
		buf, err := x.arena.Reserve(embedding.HeaderBytesV3 + m.PayloadBytes())
		if err != nil {
			return o, errors.Join(err, o.release())
		}
		o.bufs = append(o.bufs, buf)
		payload := buf.Bytes()[embedding.HeaderBytesV3:]
		for j := range payload { // finite, and as peer.py makes it
			payload[j] = byte(i+j) & 0x3f
		}
		if err := embedding.V3.Seal(buf.Bytes(), key, m); err != nil {
			return o, errors.Join(err, o.release())
		}
		buf.Commit()
		sum := sha256.Sum256(payload)
		x.sums = append(x.sums, hex.EncodeToString(sum[:]))
		o.items = append(o.items, resolve.Item{Key: key, Contract: embedding.Contract{Rows: rows, Cols: colsV3, DType: m.DType}})
		o.metas = append(o.metas, m)
	}
	return o, nil
}

// present leaves out ways of peers that do not run.
func present(ways ...*way) []*way {
	var out []*way
	for _, w := range ways {
		if w != nil {
			out = append(out, w)
		}
	}
	return out
}

// compare adds the row of ours next to a peer's, which is nil when it was not measured: then ours stands alone,
// once.
func (x *mooncakeRun) compare(what string, ours *way, peer string, theirs *way, target float64) {
	name := x.name + " " + what
	if theirs == nil {
		if !slices.ContainsFunc(x.rows, func(r Row) bool { return r.Case == name && r.NotMeasured == "" }) {
			x.rows = append(x.rows, Absolute(name, "p50 us", ours.median(), 0))
		}
		x.rows = append(x.rows, x.notMeasured(name, peer))
		return
	}
	x.rows = append(x.rows, Against(name, "p50 us", ours.median(), peer, theirs.median(), target))
}

// notMeasured is the row of a peer that does not run.
func (r *mooncakeRig) notMeasured(name, peer string) Row {
	row := Missing(name, "p50 us", peer+": "+r.without[peer])
	row.Peer = peer
	return row
}

// meanRow is the geometric mean of all cases against the dummy client.
func (r *mooncakeRig) meanRow(ratios []float64) Row {
	const name = "all cases"
	if r.peers[peerDummy] == nil {
		return r.notMeasured(name, peerDummy)
	}
	sum := 0.0
	for _, x := range ratios {
		sum += math.Log(x)
	}
	row := Absolute(name, "geometric mean of the ratios", math.Exp(sum/float64(len(ratios))), maxDummyMean)
	row.Peer = peerDummy
	return row
}
