// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/supervise"
)

// readyLine is the last line of a start that went well. Scripts wait for it.
const readyLine = "afterimage is ready"

// upArenaBytes is the default of each worker's arena under up, where several share one host.
const upArenaBytes = 512 * config.MiB

// upHandoffBytes is the default of the P/D's memory for states of prompts under up with decode workers.
const upHandoffBytes = 256 * config.MiB

// upDrain bounds the time for requests in work under up, which as a whole stops within 5 s.
const upDrain = 2 * time.Second

// upCmd runs a fleet.
type upCmd struct {
	Model     config.Model     `embed:"" group:"model"`
	Up        config.Up        `embed:"" group:"fleet"`
	Engine    config.Engine    `embed:"" group:"engine"`
	Gateway   config.Gateway   `embed:"" group:"gateway"`
	Delivery  config.Delivery  `embed:"" group:"delivery"`
	Transport config.Transport `embed:"" prefix:"transport-" group:"transport"`
	Media     config.Media     `embed:"" group:"media"`
	Kind      string           `name:"store" key:"store.kind" placeholder:"KIND" group:"store" help:"Short for --store-kind: ram, mooncake or none."`
	Store     config.Store     `embed:"" prefix:"store-" group:"store"`
	Mooncake  config.Mooncake  `embed:"" prefix:"mooncake-" group:"store"`
	Encoder   config.Encoder   `embed:"" prefix:"encoder-" group:"encoder"`
	Prefill   config.Prefill   `embed:"" prefix:"prefill-" group:"prefill"`
	Fleet     config.Fleet     `embed:"" prefix:"fleet-" group:"token"`
	Decode    config.Decode    `embed:"" prefix:"decode-" group:"decode"`
	common    `embed:""`
}

// Help is shown below the command's own line.
func (*upCmd) Help() string {
	return "Workers listen on free ports of 127.0.0.1. A role that dies is started again on its ports. Ctrl-C " +
		"stops all in order; a second one at once."
}

// Run is called by the parser.
func (c *upCmd) Run(a *app) error {
	l, err := a.load(config.RoleUp, c.File)
	if err != nil {
		return err
	}
	notice, err := upDefaults(l, caches())
	if err != nil {
		return err
	}
	if err := errors.Join(l.Validate(config.RoleUp), checkTotal(&l.Config)); err != nil {
		return usageError{err}
	}
	log := newLogger(a.Stderr, l.Log)
	tellConfig(a.ctx, log, l)
	// The gateway starts last; a port that is taken is told before anything is loaded.
	probe, err := listen("tcp", l, "gateway.listen")
	if err != nil {
		return err
	}
	probe.Close()

	return a.supervise(l, log, notice)
}

// supervise runs the fleet until a signal comes or its start fails.
func (a *app) supervise(l *config.Loaded, log *slog.Logger, notice string) error {
	now, cut := context.WithCancel(context.WithoutCancel(a.ctx))
	defer cut()
	ctx, stop := interruptible(a.ctx, cut)
	defer stop()
	s, place, err := newFleet(l, a.Stderr, log)
	if err != nil {
		return err
	}
	if err = s.Start(ctx); err == nil {
		err = announce(a.Stdout, a.name(), s.Status(), notice, place)
	} else if ctx.Err() == nil {
		fmt.Fprintln(a.Stderr)
		_ = supervise.WriteTable(a.Stderr, withoutTold(s.Status(), err))
		fmt.Fprintln(a.Stderr)
	}
	if err == nil {
		<-ctx.Done()
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		err = nil
		log.Info("stopping", "why", context.Cause(ctx))
	}
	if stopErr := s.Stop(now); stopErr != nil {
		return stopErr
	}
	if interrupted {
		log.Info("stopped")
	}
	return err
}

// withoutTold points from the reasons that err tells in full to err, which is printed below the table.
func withoutTold(table []supervise.Status, err error) []supervise.Status {
	for i := range table {
		if why := table[i].Reason; why != "" && strings.Contains(err.Error(), why) {
			table[i].Reason = "see below"
		}
	}
	return table
}

// checkTotal refuses arenas that do not fit into memory together, of which the kernel would kill one
// process after another.
func checkTotal(c *config.Config) error {
	total := config.Bytes(c.Up.Encoders)*c.Encoder.ArenaBytes + c.Prefill.ArenaBytes + c.Prefill.HandoffBytes + config.Bytes(c.Up.Decodes)*c.Decode.ArenaBytes
	if c.Store.Kind != config.StoreNone {
		total += c.Store.Bytes
	}
	limit, whose := arena.Limit()
	if int64(total) <= limit {
		return nil
	}
	gib := func(n int64) float64 { return float64(n) / float64(config.GiB) }
	decodes, or := "", ""
	if c.Up.Decodes > 0 {
		decodes = fmt.Sprintf(" + prefill.handoff_bytes (%v) + %d x decode.arena_bytes (%v)", c.Prefill.HandoffBytes, c.Up.Decodes, c.Decode.ArenaBytes)
		or = ", up.decodes"
	}
	return fmt.Errorf("%d x encoder.arena_bytes (%v) + prefill.arena_bytes (%v)%s + store.bytes (%v) are %.1f GiB, more than the %s, "+
		"%.1f GiB; lower one of them%s or up.encoders", c.Up.Encoders, c.Encoder.ArenaBytes, c.Prefill.ArenaBytes, decodes, c.Store.Bytes,
		gib(int64(total)), whose, gib(limit), or)
}

// upDefaults fills in what up chooses itself. It returns what to tell of the model.
func upDefaults(l *config.Loaded, caches []string) (notice string, err error) {
	set := func(key, text string) {
		if err == nil {
			err = l.Set(key, text, "up")
		}
	}
	for _, key := range []string{"encoder.arena_bytes", "prefill.arena_bytes"} {
		if l.Source(key) == "default" {
			set(key, upArenaBytes.String())
		}
	}
	if l.Up.Decodes > 0 && l.Source("prefill.handoff_bytes") == "default" {
		set("prefill.handoff_bytes", upHandoffBytes.String())
	}
	if l.Store.Kind == config.StoreMooncake && l.Source("store.bytes") == "default" {
		set("store.bytes", upMooncakeBytes.String())
	}
	if time.Duration(l.Server.Drain) > upDrain {
		set("server.drain", upDrain.String())
	}
	switch {
	case l.Engine.Kind == config.EngineDevice:
		notice = "Model: none. The engine is a modelled accelerator; its answers are made up."
	case l.Model.Path == "":
		demo, demoErr := modelOf(l.Model, l.Engine.Kind, caches)
		if demoErr != nil {
			return "", demoErr
		}
		set("model.path", demo.Path)
		set("model.mmproj", demo.MMProj)
		set("model.name", demo.Name)
		set("model.chat_template", demo.ChatTemplate)
		notice = "Model: the built-in demo, SmolLM2-135M with a seeded vision tower.\n" +
			"It sees colours, not objects; ask it for anything else and it makes it up.\n" +
			"Your own pair: afterimage up --model text.gguf --mmproj vision.gguf"
	default:
		notice = fmt.Sprintf("Model: %s with %s", l.Model.Path, l.Model.MMProj)
	}
	if g := l.Gateway; g.KeysFile != "" || len(g.APIKeys) > 0 {
		notice += "\nIt asks for API keys: 'ask' takes one from OPENAI_API_KEY, curl needs -H \"Authorization: Bearer KEY\"."
	}
	return notice, err
}

// fleetFile is the configuration of a fleet, in its run directory.
const fleetFile = "config.toml"

// newFleet makes the run directory with the children's configuration, and the supervisor. place is what the
// commands of 'afterimage store' take to find its Store, "" without one.
func newFleet(l *config.Loaded, logs io.Writer, log *slog.Logger) (s *supervise.Supervisor, place string, err error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	mooncake, err := upMooncake(l, caches())
	if err != nil {
		return nil, "", err
	}
	text, err := config.WriteTOML(l.Config)
	if err != nil {
		return nil, "", err
	}
	dir, err := supervise.MakeRunDir()
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, fleetFile)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	socket := ""
	switch l.Store.Kind {
	case config.StoreRAM:
		socket = filepath.Join(dir, socketName)
		place = "--path " + socket
	case config.StoreMooncake:
		place = fmt.Sprintf("--store-kind mooncake --mooncake-client %s --mooncake-admin %s", l.Mooncake.Client, l.Mooncake.Admin)
	}
	s, err = supervise.New(supervise.Config{
		Binary: binary, Arg0: "afterimage", RunDir: dir,
		Specs: append(mooncake, fleet(l.Config, file, socket)...),
		Logs:  logs, LogDir: l.Up.LogDir, Log: log,
		StartTimeout: time.Duration(l.Up.StartTimeout),
		OnChange: func(st supervise.Status) {
			if st.State == supervise.Ready {
				log.Info("ready", "process", st.Name, "address", st.Address, "pid", st.PID)
			}
		},
	})
	return s, place, err
}

// engines says what the fleet computes with, in the words of a P/D, which knows of the layers.
func engines(table []supervise.Status) string {
	for _, st := range slices.Backward(table) {
		if st.Engine != "" {
			return st.Engine
		}
	}
	return ""
}

// announce prints the table of processes, commands to try, with program as the user calls it, and readyLine.
// place is what finds the Store, as newFleet returns it.
func announce(w io.Writer, program string, table []supervise.Status, notice, place string) error {
	fmt.Fprintf(w, "\nafterimage %s\n%s\n\n", version, notice)
	if err := supervise.WriteTable(w, table); err != nil {
		return err
	}
	if text := engines(table); text != "" {
		fmt.Fprintf(w, "\nEngine: %s\n", text)
	}
	gateway := table[len(table)-1].Address
	host, port, err := net.SplitHostPort(gateway)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		gateway = net.JoinHostPort("127.0.0.1", port)
	}
	question := "What is in this picture?"
	if slices.ContainsFunc(table, func(st supervise.Status) bool { return st.Model == demoName }) {
		question = "Name the colors of the picture."
	}
	url := ""
	if gateway != "127.0.0.1:8000" {
		url = " --url http://" + gateway
	}
	look := ""
	if place != "" {
		look = "  " + program + " store ls " + place + "\n"
	}
	_, err = fmt.Fprintf(w, `
Try, in another terminal (Ctrl-C in this one stops the fleet):
  %[3]s ask%[2]s --image examples/street.jpg "%[4]s"
  curl -s http://%[1]s/v1/models
  curl -s http://%[1]s/v1/chat/completions -H 'content-type: application/json' -d @examples/photo.json
%[6]s
%[5]s
`, gateway, url, program, question, readyLine, look)
	return err
}
