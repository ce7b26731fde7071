// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/config"
	"afterimage/internal/control"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/store/ram"
	"afterimage/internal/transport"
)

// Times of looking at a fleet.
const (
	peerTimeout  = 2 * time.Second
	clockWarning = 3 * time.Second     // an answer tells its time in whole seconds
	certWarning  = 14 * 24 * time.Hour // before a certificate ends
)

// store looks at the Store that the role is told of.
func (h *checkup) store(ctx context.Context) []finding {
	c := h.l.Config
	key, path := "", ""
	switch h.role {
	case config.RoleEncoder:
		key, path = "encoder.store", c.Encoder.Store
	case config.RolePrefill:
		key, path = "prefill.store", c.Prefill.Store
	case config.RoleGateway:
		key, path = "gateway.store", c.Gateway.Store
	}
	switch {
	case c.Store.Kind == config.StoreNone:
		return []finding{{Level: mooncake.Fine, Part: "store", Text: "turned off by store.kind"}}
	case c.Store.Kind == config.StoreMooncake:
		dir, err := findMooncake(c.Mooncake.Dir, h.caches)
		level := mooncake.Fail
		if h.role != config.RoleUp {
			level = mooncake.Warn // a mooncake_client may be there already
		}
		return []finding{verdict("mooncake", "programs in "+dir+"; 'afterimage doctor --store mooncake' looks at the cluster", err, level, "")}
	case key == "":
		return nil // it is run here
	case path == "" && h.role == config.RoleGateway:
		return []finding{{Level: mooncake.Fine, Part: "store", Text: "gateway.store is empty: the page shows nothing of the Store"}}
	case path == "":
		return []finding{{Level: mooncake.Warn, Part: "store", Text: key + " is empty: this worker shares nothing", Mend: "name the socket of this host's Store in " + key}}
	}
	return []finding{askStore(ctx, path)}
}

// askStore has a Store sum itself up.
func askStore(ctx context.Context, path string) finding {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	said := ""
	client, err := ram.Dial(ctx, ram.ClientConfig{Path: path})
	if err == nil {
		defer client.Close()
		t, e := client.Totals(ctx)
		said, err = fmt.Sprintf("%s: %d objects, %s of %s", path, t.Objects, size(t.Bytes), size(t.LimitBytes)), e
	}
	return verdict("store", said, err, mooncake.Fail, "start 'afterimage store --path "+path+"' as this user, or name another socket")
}

// peer is a worker that a gateway is told of.
type peer struct {
	kind, url string
	worker    control.Announcement
	skew      time.Duration // of its clock before ours
	err       error
}

// look asks the workers, once.
func (h *checkup) look(ctx context.Context) []peer {
	if h.peers != nil || h.role != config.RoleGateway {
		return h.peers
	}
	h.peers = []peer{}
	for _, url := range h.l.Gateway.Encoders {
		h.peers = append(h.peers, peer{kind: "encoder", url: url})
	}
	for _, url := range h.l.Gateway.Prefills {
		h.peers = append(h.peers, peer{kind: "prefill", url: url})
	}
	for _, url := range h.l.Gateway.Decodes {
		h.peers = append(h.peers, peer{kind: "decode", url: url})
	}
	var wg sync.WaitGroup
	for i := range h.peers {
		wg.Go(func() { h.peers[i].ask(ctx, h.client) })
	}
	wg.Wait()
	return h.peers
}

// ask reads what a worker says of itself, and its time.
func (p *peer) ask(ctx context.Context, client *http.Client) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(p.url, "/")+control.PathWorker, nil)
	if err != nil {
		p.err = err
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		p.err = errors.Unwrap(err)
		return
	}
	defer resp.Body.Close()
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		p.skew = time.Until(at)
	}
	if resp.StatusCode != http.StatusOK {
		p.err = fmt.Errorf("it answered %s", resp.Status)
		return
	}
	p.err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p.worker)
}

// askPeers looks at the workers of a gateway: are they there, of the right kind and version?
func (h *checkup) askPeers(ctx context.Context) (found []finding) {
	up := map[string]int{}
	for _, p := range h.look(ctx) {
		f := p.judge()
		if f.Level != mooncake.Fail {
			up[p.kind]++
		}
		found = append(found, f)
	}
	for i := range found { // gateways get along with some
		if kind := h.peers[i].kind; found[i].Level == mooncake.Fail && up[kind] > 0 && h.peers[i].err != nil {
			found[i].Level = mooncake.Warn
		}
	}
	return append(found, handOvers(h.peers)...)
}

// handOvers looks at what decode workers are for: a P/D without memory for states gives its answers itself.
func handOvers(peers []peer) (found []finding) {
	decodes, alone := 0, []string{}
	for _, p := range peers {
		switch {
		case p.err != nil:
		case p.kind == "decode":
			decodes++
		case p.kind == "prefill" && !p.worker.HandsOver:
			alone = append(alone, p.url)
		}
	}
	if decodes == 0 || len(alone) == 0 {
		return nil
	}
	return []finding{{Level: mooncake.Warn, Part: "peer", Text: strings.Join(alone, ", ") + ": hands no prompts over to the decode workers",
		Mend: "set prefill.handoff_bytes of these P/Ds"}}
}

func (p *peer) judge() finding {
	f := finding{Level: mooncake.Fine, Part: "peer", Text: fmt.Sprintf("%s: %s, version %s", p.url, p.worker.Name, p.worker.Version)}
	fail := func(mend, format string, args ...any) finding {
		return finding{Level: mooncake.Fail, Part: "peer", Text: p.url + ": " + fmt.Sprintf(format, args...), Mend: mend}
	}
	switch w := p.worker; {
	case p.err != nil:
		return fail("start the worker, or mend its address in gateway."+p.kind+"s", "%v", p.err)
	case w.Role != p.kind:
		return fail("put it into the list of its kind", "a worker of role %q among those of role %s", w.Role, p.kind)
	case w.Wire != transport.WireVersion || w.Keys != transport.KeyVersion:
		return fail("run one version in a fleet", "wire %d and keys %d, here they are %d and %d", w.Wire, w.Keys, transport.WireVersion, transport.KeyVersion)
	case !w.Ready:
		f.Level, f.Text, f.Mend = mooncake.Warn, f.Text+", not ready: "+w.Reason, "wait, or start a worker that is to stay"
	case w.Version != version:
		f.Level, f.Text, f.Mend = mooncake.Warn, f.Text+", here it is "+version, "run one version in a fleet"
	}
	return f
}

// clock asks the kernel whether the time is kept by another clock, and compares it with that of peers.
func (h *checkup) clock(ctx context.Context) []finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	f := finding{Level: mooncake.Fine, Part: "clock", Text: "is kept in step"}
	if err == nil && state == unix.TIME_ERROR {
		f = finding{Level: mooncake.Warn, Part: "clock", Text: "nothing keeps it in step: times of logs and traces will not agree between hosts", Mend: "run chrony or systemd-timesyncd on the host"}
	}
	found := []finding{f}
	for _, p := range h.look(ctx) {
		if p.err == nil && p.skew.Abs() > clockWarning {
			found = append(found, finding{Level: mooncake.Warn, Part: "clock", Text: fmt.Sprintf("that of %s is %v off", p.url, p.skew.Round(time.Second)),
				Mend: "run chrony or systemd-timesyncd on both hosts"})
		}
	}
	return found
}

// tls reads the certificate of data connections.
func (h *checkup) tls(context.Context) []finding {
	t := h.l.Transport
	if t.TLSCert == "" || !h.is(config.RoleEncoder, config.RolePrefill, config.RoleDecode) {
		return nil
	}
	_, err := tlsFiles(t).Load()
	if err != nil {
		return []finding{verdict("tls", "", err, mooncake.Fail, "name a certificate, its key and its authorities in PEM")}
	}
	pair, err := tls.LoadX509KeyPair(t.TLSCert, t.TLSKey)
	if err != nil {
		return []finding{verdict("tls", "", err, mooncake.Fail, "name a certificate and its key in PEM")}
	}
	return []finding{judgeEnd(pair.Leaf.NotAfter, time.Now())}
}

func judgeEnd(end, now time.Time) finding {
	f := finding{Level: mooncake.Fine, Part: "tls", Text: "the certificate is valid until " + end.Format(time.DateOnly)}
	switch left := end.Sub(now); {
	case left <= 0:
		f.Level, f.Text, f.Mend = mooncake.Fail, "the certificate ended on "+end.Format(time.DateOnly), "make a new one"
	case left < certWarning:
		f.Level, f.Mend = mooncake.Warn, "make a new one"
	}
	return f
}
