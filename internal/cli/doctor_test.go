// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/control"
	"afterimage/internal/gguf"
	"afterimage/internal/model"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/store/ram"
	"afterimage/internal/transport"
)

// expect checks the level of a finding, a text in it, and that it names a mend unless all is well.
func expect(t *testing.T, f finding, level mooncake.Level, text string) {
	t.Helper()
	if f.Level != level || !strings.Contains(f.Text, text) || f.Level != mooncake.Fine && f.Mend == "" {
		t.Errorf("got %+v, want %s: %s, and a mend unless it is ok", f, level, text)
	}
}

func TestDoctorJudgesMemory(t *testing.T) {
	const gib = 1 << 30
	expect(t, judgeMemory(2*gib, 8*gib, "memory of this machine", 4*gib), mooncake.Fine, "arenas take 2.0 GiB of the memory of this machine, 8.0 GiB")
	expect(t, judgeMemory(5*gib, 8*gib, "memory of this machine", 4*gib), mooncake.Warn, "only 4.0 GiB are free")
	expect(t, judgeMemory(9*gib, 8*gib, "memory limit of cgroup /x", 16*gib), mooncake.Fail, "cgroup /x")
	expect(t, judgeMemlock(8<<20, false, gib), mooncake.Fine, "8.0 MiB may be locked")
	expect(t, judgeMemlock(8<<20, true, gib), mooncake.Fail, "RDMA pins 1.0 GiB")
	expect(t, judgeMemlock(math.MaxInt64, true, gib), mooncake.Fine, "any memory")
	file := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(file, []byte("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := available(file); got != 2<<20 {
		t.Errorf("available: %d, want 2 MiB", got)
	}
}

// What is counted is what the role fills, with the sizes that up gives it.
func TestDoctorCountsArenas(t *testing.T) {
	l := load(t, "AFTERIMAGE_STORE_BYTES=2GiB")
	for role, want := range map[config.Role]config.Bytes{
		config.RoleUp: 2*config.GiB + 3*upArenaBytes, config.RoleStore: 2 * config.GiB, config.RoleEncoder: config.GiB,
		config.RolePrefill: config.GiB, config.RoleGateway: 0,
	} {
		if got := (&checkup{l: l, role: role}).arenas(); got != want {
			t.Errorf("%s: %v, want %v", role, got, want)
		}
	}
	l = load(t, "AFTERIMAGE_UP_DECODES=2", "AFTERIMAGE_STORE_KIND=none", "AFTERIMAGE_DECODE_ARENA_BYTES=1GiB")
	for role, want := range map[config.Role]config.Bytes{config.RoleUp: 2*config.GiB + 3*upArenaBytes + upHandoffBytes, config.RoleDecode: config.GiB} {
		if got := (&checkup{l: l, role: role}).arenas(); got != want {
			t.Errorf("%s with decode workers: %v, want %v", role, got, want)
		}
	}
}

func TestDoctorTriesSharedMemoryAndFiles(t *testing.T) {
	h := &checkup{l: load(t), role: config.RoleStore}
	expect(t, h.shm(t.Context())[0], mooncake.Fine, "memfd")
	if found := h.files(t.Context()); len(found) != 1 || !strings.Contains(found[0].Text, "may be open") {
		t.Errorf("files: %+v", found)
	}
}

func TestDoctorTriesPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	l := load(t, "AFTERIMAGE_PREFILL_LISTEN=127.0.0.1:0", "AFTERIMAGE_PREFILL_DATA_LISTEN="+taken.Addr().String())
	found := (&checkup{l: l, role: config.RolePrefill}).ports(t.Context())
	if len(found) != 2 {
		t.Fatalf("got %+v, want two ports", found)
	}
	expect(t, found[0], mooncake.Fine, "is free")
	if found[1].Level != mooncake.Warn || !strings.Contains(found[1].Text, "in use") || !strings.Contains(found[1].Text, "--data-listen") {
		t.Errorf("a port that is taken: %+v", found[1])
	}
	l = load(t, "AFTERIMAGE_STORE_LISTEN=127.0.0.1:0", "AFTERIMAGE_STORE_PATH=/does/not/exist/s.sock")
	found = (&checkup{l: l, role: config.RoleStore}).ports(t.Context())
	expect(t, found[1], mooncake.Warn, "/does/not/exist: no such file")
}

func TestDoctorAsksTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	encoder := func(env ...string) finding {
		return (&checkup{l: load(t, env...), role: config.RoleEncoder}).store(t.Context())[0]
	}
	expect(t, encoder(), mooncake.Warn, "encoder.store is empty")
	expect(t, encoder("AFTERIMAGE_STORE_KIND=none"), mooncake.Fine, "turned off")
	expect(t, encoder("AFTERIMAGE_ENCODER_STORE="+path), mooncake.Fail, "s.sock")
	srv, err := ram.NewServer(ram.Config{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := ram.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ctx, ln) }()
	expect(t, encoder("AFTERIMAGE_ENCODER_STORE="+path), mooncake.Fine, "0 objects, 0 B of 1.0 MiB")
	if err := socketFree(path); err == nil || !strings.Contains(err.Error(), "answers there already") {
		t.Errorf("a socket in use: %v", err)
	}
	stop()
	<-done
	srv.Close()
}

func TestDoctorHoldsThePairTogether(t *testing.T) {
	dir := t.TempDir()
	if err := model.WriteRandom(dir, model.RandomOptions{Projector: model.InternVL, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	text, projector := filepath.Join(dir, model.TextFile), filepath.Join(dir, model.ProjectorFile)
	found := checkModels(config.Model{Path: text, MMProj: projector}, nil)
	expect(t, found[len(found)-1], mooncake.Fine, "belongs together")
	if found = checkModels(config.Model{Path: text}, nil); len(found) != 1 {
		t.Errorf("a P/D alone: %+v", found)
	}
	a, err := gguf.Open(text)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, checkPair(a, a), mooncake.Fine, "do not tell")
	narrow := filepath.Join(t.TempDir(), "narrow.gguf")
	var b gguf.Writer
	b.Set("general.architecture", "clip")
	b.Set("clip.vision.projection_dim", uint32(7))
	if err := b.WriteFile(narrow); err != nil {
		t.Fatal(err)
	}
	n, err := gguf.Open(narrow)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, checkPair(a, n), mooncake.Fail, "of 7 numbers")
}

// workerAt serves what a worker says of itself, with a clock that is off.
func workerAt(t *testing.T, a control.Announcement, off time.Duration) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
		_ = json.NewEncoder(w).Encode(a)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestDoctorAsksPeers(t *testing.T) {
	fit := control.Announcement{Role: "encoder", Name: "e", Version: version, Wire: transport.WireVersion, Keys: transport.KeyVersion, Ready: true}
	with := func(change func(*control.Announcement)) control.Announcement { a := fit; change(&a); return a }
	prefill := with(func(a *control.Announcement) { a.Role, a.Name = "prefill", "p" })
	peers := func(encoders ...string) []finding {
		l := load(t, "AFTERIMAGE_GATEWAY_ENCODERS="+strings.Join(encoders, ","), "AFTERIMAGE_GATEWAY_PREFILLS="+workerAt(t, prefill, 0))
		client := &http.Client{Timeout: peerTimeout}
		defer client.CloseIdleConnections()
		return (&checkup{l: l, role: config.RoleGateway, client: client}).askPeers(t.Context())
	}
	good := workerAt(t, fit, 0)
	found := peers(good)
	if len(found) != 2 {
		t.Fatalf("got %+v, want two peers", found)
	}
	expect(t, found[0], mooncake.Fine, "e, version dev")
	expect(t, peers("http://127.0.0.1:1")[0], mooncake.Fail, "refused")
	expect(t, peers("http://127.0.0.1:1", good)[0], mooncake.Warn, "refused") // there is another
	expect(t, peers(workerAt(t, prefill, 0))[0], mooncake.Fail, "a worker of role \"prefill\" among those of role encoder")
	expect(t, peers(workerAt(t, with(func(a *control.Announcement) { a.Wire = 99 }), 0))[0], mooncake.Fail, "wire 99")
	expect(t, peers(workerAt(t, with(func(a *control.Announcement) { a.Version = "v0" }), 0))[0], mooncake.Warn, "version v0, here it is dev")
	expect(t, peers(workerAt(t, with(func(a *control.Announcement) { a.Ready, a.Reason = false, "draining" }), 0))[0], mooncake.Warn, "not ready: draining")
}

// Decode workers are looked at, and whether any P/D hands prompts over to them.
func TestDoctorAsksDecodeWorkers(t *testing.T) {
	worker := func(role string, over bool) string {
		return workerAt(t, control.Announcement{Role: role, Name: role, Version: version, Wire: transport.WireVersion, Keys: transport.KeyVersion, Ready: true, HandsOver: over}, 0)
	}
	peers := func(over bool, decodes string) []finding {
		l := load(t, "AFTERIMAGE_GATEWAY_PREFILLS="+worker("prefill", over), "AFTERIMAGE_GATEWAY_DECODES="+decodes)
		client := &http.Client{Timeout: peerTimeout}
		defer client.CloseIdleConnections()
		return (&checkup{l: l, role: config.RoleGateway, client: client}).askPeers(t.Context())
	}
	if found := peers(true, worker("decode", false)); len(found) != 2 || found[1].Level != mooncake.Fine || !strings.Contains(found[1].Text, "decode, version dev") {
		t.Errorf("a fleet in three ways: %+v", found)
	}
	if found := peers(false, worker("decode", false)); len(found) != 3 {
		t.Errorf("a P/D that keeps no states: %+v", found)
	} else {
		expect(t, found[2], mooncake.Warn, "hands no prompts over")
	}
	if found := peers(false, ""); len(found) != 1 {
		t.Errorf("a P/D without decode workers: %+v", found)
	}
	expect(t, peers(true, worker("prefill", true))[1], mooncake.Fail, `a worker of role "prefill" among those of role decode`)
}

func TestDoctorComparesClocks(t *testing.T) {
	late := control.Announcement{Role: "encoder"}
	clocks := func(off time.Duration) []finding {
		l := load(t, "AFTERIMAGE_GATEWAY_ENCODERS="+workerAt(t, late, off))
		client := &http.Client{Timeout: peerTimeout}
		defer client.CloseIdleConnections()
		return (&checkup{l: l, role: config.RoleGateway, client: client}).clock(t.Context())
	}
	if found := clocks(0); len(found) != 1 || found[0].Part != "clock" {
		t.Errorf("clocks in step: %+v", found)
	}
	if found := clocks(-time.Hour); len(found) != 2 {
		t.Errorf("a clock that is late: %+v", found)
	} else {
		expect(t, found[1], mooncake.Warn, "1h0m")
	}
}

func TestDoctorReadsCertificates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	expect(t, judgeEnd(now.AddDate(1, 0, 0), now), mooncake.Fine, "valid until 2027-01-01")
	expect(t, judgeEnd(now.AddDate(0, 0, 3), now), mooncake.Warn, "valid until 2026-01-04")
	expect(t, judgeEnd(now, now), mooncake.Fail, "ended on 2026-01-01")
	file := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := load(t, "AFTERIMAGE_TRANSPORT_TLS_CERT="+file, "AFTERIMAGE_TRANSPORT_TLS_KEY="+file, "AFTERIMAGE_TRANSPORT_TLS_CA="+file)
	expect(t, (&checkup{l: l, role: config.RoleEncoder}).tls(t.Context())[0], mooncake.Fail, "")
}

// Each check alone has an exit status of its own.
func TestDoctorMakesOneCheck(t *testing.T) {
	env := []string{"AFTERIMAGE_GATEWAY_PREFILLS=http://127.0.0.1:1"}
	out, status := doctor(t, env, "--role", "gateway", "--only", "peers")
	if status != exitFailure || !strings.HasPrefix(out, "fail  peer  http://127.0.0.1:1") || strings.Contains(out, "golden") {
		t.Errorf("peers: status %d\n%s", status, out)
	}
	out, status = doctor(t, env, "--role", "gateway", "--only", "vectors,shm")
	if status != exitOK || strings.Count(out, "ok ") != 2 {
		t.Errorf("vectors and shared memory: status %d\n%s", status, out)
	}
}

// Workers that ask for the fleet's token are shown it.
func TestDoctorShowsTheToken(t *testing.T) {
	fit := control.Announcement{Role: "prefill", Name: "p", Version: version, Wire: transport.WireVersion, Keys: transport.KeyVersion, Ready: true}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-of-the-fleet" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(fit)
	}))
	defer srv.Close()
	env := []string{"AFTERIMAGE_GATEWAY_PREFILLS=" + srv.URL}
	ask := []string{"--role", "gateway", "--only", "peers"}
	if out, status := doctor(t, env, ask...); status != exitFailure || !strings.Contains(out, "401") {
		t.Errorf("without a token: status %d\n%s", status, out)
	}
	if out, status := doctor(t, append(env, "AFTERIMAGE_FLEET_TOKEN=token-of-the-fleet"), ask...); status != exitOK || !strings.Contains(out, "ok    peer") {
		t.Errorf("with the token: status %d\n%s", status, out)
	}
}
