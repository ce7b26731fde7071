// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/engine/device"
)

// roles is a fleet whose processes a benchmark starts one by one, to have them as it wants them.
type roles struct {
	l   launcher
	dir string // for the Store's socket and shared clocks; removed by whoever made it

	children []*child // in the order in which they must stop
	store    string   // base URLs; "" is none
	encoders []string
	prefills []string
	gateway  string
}

// rolesSpec says what fleet to start.
type rolesSpec struct {
	encoders, prefills int
	// monolithic pairs each Encoder with the P/D of its number: both are one server and share its device.
	monolithic bool
	store      bool // start a Store, and let Encoders share through it
	delivery   string
	profile    device.Profile // of the modelled device
	model      []string       // flags of a real model; nil models a device

	storeBytes, encoderArena, encoderCache, prefillArena, residents int64
}

// common are the flags that all workers have.
func (s *rolesSpec) common(dir string, i int) []string {
	flags := []string{"--listen", "127.0.0.1:0", "--log-format", "json"}
	if s.model != nil {
		return append(flags, s.model...)
	}
	p := s.profile
	if s.monolithic {
		p.Clock = filepath.Join(dir, fmt.Sprintf("clock-%d", i))
	}
	return append(flags, "--engine", "device", "--device", p.String())
}

// wholePrompt is a budget of a step that no prompt exceeds.
const wholePrompt = "100000"

func bytesFlag(n int64) string { return strconv.FormatInt(n, 10) }

// roles starts a fleet and waits until its gateway has all workers in service.
func (l launcher) roles(ctx context.Context, dir string, s rolesSpec) (*roles, error) {
	f := &roles{l: l, dir: dir, encoders: make([]string, s.encoders), prefills: make([]string, s.prefills)}
	err := f.start(ctx, &s)
	if err == nil {
		err = poll(ctx, "all workers are in service", func() (bool, error) { return f.allUp(ctx) })
	}
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *roles) start(ctx context.Context, s *rolesSpec) (err error) {
	socket := filepath.Join(f.dir, "store.sock")
	if s.store {
		f.store, err = f.run(ctx, "store", "store", "--listen", "127.0.0.1:0", "--log-format", "json", "--path", socket, "--bytes", bytesFlag(s.storeBytes))
		if err != nil {
			return err
		}
	}
	var grp errgroup.Group
	worker := func(into *string, role string, i int, flags []string) error {
		name := fmt.Sprintf("%s-%d", role, i)
		args := append(append([]string{role}, s.common(f.dir, i)...), "--name", name)
		c, err := startRole(f.l, name, append(args, flags...))
		if err != nil {
			return err
		}
		f.children = append([]*child{c.child}, f.children...)
		grp.Go(func() error {
			err := c.await(ctx)
			*into = "http://" + c.said.Address
			return err
		})
		return nil
	}
	for i := range s.encoders {
		err = errors.Join(err, worker(&f.encoders[i], "encoder", i, s.encoderFlags(socket)))
	}
	for i := range s.prefills {
		err = errors.Join(err, worker(&f.prefills[i], "prefill", i, s.prefillFlags(socket)))
	}
	if err = errors.Join(err, grp.Wait()); err != nil {
		return err
	}
	return f.startGateway(ctx)
}

func (s *rolesSpec) encoderFlags(socket string) []string {
	flags := []string{"--arena-bytes", bytesFlag(s.encoderArena), "--cache-bytes", bytesFlag(s.encoderCache), "--store-max-pending-items", "1024"}
	if s.store {
		flags = append(flags, "--store", socket)
	}
	return flags
}

func (s *rolesSpec) prefillFlags(socket string) []string {
	flags := []string{"--data-listen", "127.0.0.1:0", "--arena-bytes", bytesFlag(s.prefillArena), "--resident-bytes", bytesFlag(s.residents), "--delivery", s.delivery}
	if s.model == nil && s.profile.Whole { // in one piece, then, not in those of a step's budget
		flags = append(flags, "--step-tokens", wholePrompt)
	}
	if s.store && s.delivery == "direct" {
		flags = append(flags, "--store", socket)
	}
	return flags
}

// startGateway puts a gateway before the workers; requests go to the one that was started last.
func (f *roles) startGateway(ctx context.Context) (err error) {
	args := []string{"gateway", "--listen", "127.0.0.1:0", "--log-format", "json"}
	for _, u := range f.encoders {
		args = append(args, "--encoder", u)
	}
	for _, u := range f.prefills {
		args = append(args, "--prefill", u)
	}
	f.gateway, err = f.run(ctx, "gateway", args...)
	return err
}

// role is a process of this program that says where it listens.
type role struct {
	*child
	said struct{ Msg, Address string } // valid once the child is ready
}

func startRole(l launcher, name string, args []string) (*role, error) {
	r := &role{}
	var err error
	r.child, err = startChild("afterimage "+name, l.binary, args, l.env, func(line string) bool {
		return json.Unmarshal([]byte(line), &r.said) == nil && r.said.Msg == "listening" && r.said.Address != ""
	})
	return r, err
}

// run starts a role that others follow, and returns its base URL. It stops after those that follow.
func (f *roles) run(ctx context.Context, name string, args ...string) (string, error) {
	r, err := startRole(f.l, name, args)
	if err != nil {
		return "", err
	}
	f.children = append([]*child{r.child}, f.children...)
	if err := r.await(ctx); err != nil {
		return "", err
	}
	return "http://" + r.said.Address, nil
}

// allUp says whether the gateway has every worker in service.
func (f *roles) allUp(ctx context.Context) (bool, error) {
	type seen struct{ Up bool }
	var fleet struct{ Encoders, Prefills []seen }
	b, err := get(ctx, f.gateway+"/v1/fleet")
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, &fleet); err != nil {
		return false, fmt.Errorf("bench: /v1/fleet: %w", err)
	}
	if len(fleet.Encoders) != len(f.encoders) || len(fleet.Prefills) != len(f.prefills) {
		return false, errors.New("bench: /v1/fleet does not list all workers")
	}
	for _, w := range append(fleet.Encoders, fleet.Prefills...) {
		if !w.Up {
			return false, nil
		}
	}
	return true, nil
}

// kill ends one Encoder at once.
func (f *roles) kill(i int) error {
	for _, c := range f.children {
		if c.name == fmt.Sprintf("afterimage encoder-%d", i) {
			if err := c.cmd.Process.Kill(); err != nil {
				return err
			}
			<-c.exited
			return nil
		}
	}
	return fmt.Errorf("bench: no Encoder %d", i)
}

// stop ends all processes, those that use others first.
func (f *roles) stop() {
	for _, c := range f.children {
		c.stop()
	}
}

// settleMemory waits until total bytes of memory are faulted in: a process does that in the background when it starts.
func settleMemory(ctx context.Context, total int64) error {
	const perSecond = 1 << 30
	return pause(ctx, time.Second+time.Duration(total)*time.Second/perSecond)
}
