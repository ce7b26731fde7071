// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/supervise"
)

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
	if err := readyLogDir(l); err != nil {
		return err
	}
	// The gateway starts last; a port that is taken is told before anything is loaded.
	probe, err := listen("tcp", l, "gateway.listen")
	if err != nil {
		return err
	}
	probe.Close()

	return a.supervise(l, log, notice)
}

// readyLogDir makes the directory for logs and sees that files can be made in it.
func readyLogDir(l *config.Loaded) error {
	dir := l.Up.LogDir
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".afterimage-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return usageError{fmt.Errorf("up.log_dir = %q (%s): %w; give a directory that this user can make, or write into",
			dir, l.Source("up.log_dir"), causeOf(err))}
	}
	return nil
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
	socket, place := storePlace(l, dir)
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

// storePlace returns the socket of the fleet's Store, which is in dir, and the flags that lead other commands to it; ""
// for what there is not.
func storePlace(l *config.Loaded, dir string) (socket, flags string) {
	switch l.Store.Kind {
	case config.StoreRAM:
		socket = filepath.Join(dir, socketName)
		return socket, "--path " + socket
	case config.StoreMooncake:
		return "", fmt.Sprintf("--store-kind mooncake --mooncake-client %s --mooncake-admin %s", l.Mooncake.Client, l.Mooncake.Admin)
	}
	return "", ""
}
