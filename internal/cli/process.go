// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admin"
	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/control"
	"afterimage/internal/engine"
	"afterimage/internal/quick"
	"afterimage/internal/store/ram"
	"afterimage/internal/supervise"
	"afterimage/internal/tracing"
)

// process is what every role process has: the part that is the same for all of them.
type process struct {
	role     config.Role
	name     string   // unique in the fleet
	env      []string // as os.Environ
	log      *slog.Logger
	registry *prometheus.Registry
	// http is the listener of the role's HTTP server; serve closes it.
	http net.Listener
	// data is the role's other listener, nil if it has none: the Store's socket, or where a prefill
	// worker takes embeddings. It is closed when the role has returned; closing it before is fine.
	data  net.Listener
	drain time.Duration
	// polls says how connections to other processes of this host wait.
	polls *quick.Policy
	// tracer records spans; nil records none.
	tracer *tracing.Tracer
	// engine says what computes, "" where nothing does.
	engine string
	// tokens are those of the fleet, which a worker asks for; none lets everybody in.
	tokens []string
}

// computesWith tells what the engine of the role computes with.
func (p *process) computesWith(b engine.Backend) {
	p.engine = b.String()
	if b.Why != "" {
		p.engine += " (" + b.Why + ")"
	}
	level := lifeLevel()
	if b.Software {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "engine", "computes_with", b.String(), "why", b.Why)
}

// ready tells the supervisor, if there is one, that the listeners are open. The role calls it once,
// when /readyz is answered; the process counts as ready when /readyz says so. model is shown to
// people.
func (p *process) ready(model string) error {
	l := supervise.Listening{Listen: p.http.Addr().String(), Model: model, Engine: p.engine}
	if p.data != nil {
		l.Data = p.data.Addr().String()
	}
	about := []any{"address", l.Listen}
	for _, a := range [][2]string{{"data", l.Data}, {"model", model}} {
		if a[1] != "" {
			about = append(about, a[0], a[1])
		}
	}
	p.log.Log(context.Background(), lifeLevel(), "listening", about...)
	return supervise.Notify(l)
}

// lifeLevel is the level for the start and end of a process: its supervisor, if it has one, tells of
// those by itself.
func lifeLevel() slog.Level {
	if supervise.Supervised() {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// tellConfig logs what is configured, at the start of a process.
func tellConfig(ctx context.Context, log *slog.Logger, l *config.Loaded) {
	log.LogAttrs(ctx, lifeLevel(), "configuration", append(l.Attrs(), slog.String("others", "default"))...)
}

// mux returns the endpoints that every role has, to be added to. isReady and isLive may be nil.
func (p *process) mux(isReady, isLive func() error) *http.ServeMux {
	return admin.Mux(admin.Role{
		Name: string(p.role), Version: version, Registry: p.registry, Ready: isReady, Live: isLive,
	})
}

// announcer is what a worker says of itself.
type announcer interface {
	Announcement() control.Announcement
	Alive() error
}

// workerMux returns a mux with the endpoints of a worker. It is ready as gateways hear of it; what lost says, that
// its Store is gone for good, ends with the process only.
func (p *process) workerMux(lost func() error, w announcer) *http.ServeMux {
	isReady := func() error {
		if a := w.Announcement(); !a.Ready {
			return errors.Join(lost(), errors.New(a.Reason))
		}
		return lost()
	}
	return p.mux(isReady, func() error { return errors.Join(lost(), w.Alive()) })
}

// serve answers requests until ctx ends, then gives those in work the time to drain.
func (p *process) serve(ctx context.Context, h http.Handler) error {
	return admin.Serve(ctx, p.http, h, p.drain)
}

// memory maps the arena of the role, of bytes bytes as key says. It is closed with parts.
func (p *process) memory(key string, bytes config.Bytes, parts *closers) (*arena.Arena, error) {
	a, err := arena.New(arena.Config{Name: "afterimage-" + p.name, Bytes: int64(bytes)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	// Others may hold loans of it, or be writing into it still, through mappings of their own, which stay.
	parts.add(a.Detach)
	return a, nil
}

// roleRun is run<Role>: it puts a role together, serves until ctx ends, and takes the role apart. On
// return nothing of it runs any more.
type roleRun func(ctx context.Context, cfg config.Config, p *process) error

// addresses says which keys of a configuration the listeners of a role come from.
type addresses struct {
	http        string
	data        string // "" without a second listener
	dataNetwork string // "tcp" or "unix"
}

// runRole is the life of a role process around run.
func (a *app) runRole(role config.Role, file string, name func(*config.Config) string, at addresses, run roleRun) error {
	l, err := a.load(role, file)
	if err != nil {
		return err
	}
	ctx, stop := supervise.Lifeline(a.ctx)
	defer stop()
	ctx, done := interruptible(ctx, func() { os.Exit(exitFailure) })
	defer done()

	p := &process{role: role, name: name(&l.Config), env: a.Env, registry: admin.NewRegistry(), drain: time.Duration(l.Server.Drain),
		polls: quick.NewPolicy(time.Duration(l.Server.BusyPoll))}
	if role == config.RoleEncoder || role == config.RolePrefill { // who calls others of its host
		p.registry.MustRegister(p.polls)
	}
	if p.tokens, err = l.Fleet.Tokens(); err != nil {
		return usageError{err} // the file changed since it was checked
	}
	p.log = newLogger(a.Stderr, l.Log).With("process", p.name)
	slog.SetDefault(p.log)
	defer p.trace(l.Tracing, os.Getenv)()
	tellConfig(ctx, p.log, l)
	if err = p.listenAndRun(ctx, l, at, run); ctx.Err() != nil {
		p.log.Log(context.Background(), lifeLevel(), "stopped", "why", context.Cause(ctx))
	}
	if err != nil && supervise.Refuse(err) {
		return toldError{err}
	}
	return err
}

// listenAndRun opens the listeners, runs the role and closes them.
func (p *process) listenAndRun(ctx context.Context, l *config.Loaded, at addresses, run roleRun) (err error) {
	if p.http, err = listen("tcp", l, at.http); err != nil {
		return err
	}
	defer p.http.Close()
	if at.data != "" {
		if p.data, err = listen(at.dataNetwork, l, at.data); err != nil {
			return err
		}
		defer p.data.Close()
	}
	return run(ctx, l.Config, p)
}

// listen opens the listener whose address is the value of key.
func listen(network string, l *config.Loaded, key string) (ln net.Listener, err error) {
	address := text(l, key)
	if network == "unix" {
		ln, err = ram.Listen(address)
	} else {
		ln, err = net.Listen(network, address)
	}
	mend := "give an address of this host"
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err, mend = errors.New("in use"), "stop what listens there, or give another address with "+flagOf(key)
	case network == "unix":
		mend = "give the path of a socket to make"
	default:
		if no, ok := errors.AsType[syscall.Errno](err); ok {
			err = no
		}
	}
	return nil, fmt.Errorf("%s = %q (%s): %w; %s", key, address, l.Source(key), err, mend)
}

// flagOf returns the flag that sets key in the command that listens there.
func flagOf(key string) string {
	_, name, _ := strings.Cut(key, ".")
	return "--" + strings.ReplaceAll(name, "_", "-")
}

// text returns the value of key in l.
func text(l *config.Loaded, key string) string {
	for _, k := range config.Keys() {
		if k.Name == key {
			return k.Text(&l.Config)
		}
	}
	panic("BUG: no key " + key)
}

// newLogger returns a logger to w. cfg is valid.
func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
