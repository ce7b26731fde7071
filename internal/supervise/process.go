// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// process keeps one Spec running. Its run goroutine is the only one that changes it.
type process struct {
	spec Spec
	s    *Supervisor
	out  *lineWriter
	log  *os.File // with LogDir; nil without
	back backoff

	cancel context.CancelFunc
	kill   chan struct{} // closed when patience with a stopping child ends
	done   chan struct{} // closed when run has returned

	// first gets one value of each process of a stage: nil once it is ready, or why it never will be.
	first    chan error
	wasReady bool
}

// run starts the child again and again until ctx ends or the process fails for good.
func (p *process) run(ctx context.Context) {
	defer close(p.done)
	since := time.Now()
	for {
		up, err := p.once(ctx)
		if ctx.Err() != nil {
			p.set(func(st *Status) { st.State, st.Reason, st.PID = Stopped, "", 0 })
			return
		}
		if !p.wasReady && (isFinal(err) || time.Since(since) >= p.s.cfg.StartTimeout) {
			p.set(func(st *Status) { st.State, st.Reason, st.PID = Failed, p.why(err), 0 })
			p.first <- fmt.Errorf("%s: %w%s", p.spec.Name, err, p.lastWords(err))
			return
		}
		if up >= p.s.cfg.BackoffReset {
			p.back.reset()
		}
		delay := p.back.next()
		p.s.cfg.Log.Warn("a process is down", "process", p.spec.Name, "reason", err, "restart_in", delay)
		p.set(func(st *Status) {
			st.State, st.PID = Down, 0
			st.Reason = fmt.Sprintf("%s; starts again in %v", p.why(err), delay)
			st.Restarts++
		})
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// finalError marks an end after which another start makes no sense. Its text tells the cause.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	_, ok := errors.AsType[finalError](err)
	return ok
}

// endError is the end of a child that did not say why.
type endError struct{ error }

func (e endError) Unwrap() error { return e.error }

// why is err for one line of a table: with the child's last words if those tell more than its exit
// status.
func (p *process) why(err error) string {
	if _, mute := errors.AsType[endError](err); mute {
		if last := p.out.Last(); last != "" {
			return fmt.Sprintf("%v: %s", err, last)
		}
	}
	return err.Error()
}

// lastWords is what the child printed last, where it may tell more than err.
func (p *process) lastWords(err error) string {
	if _, mute := errors.AsType[endError](err); mute || errors.Is(err, errTimeout) {
		return p.out.Tail()
	}
	return ""
}

// once runs the child one time. It returns how long the child was ready and how it ended.
func (p *process) once(ctx context.Context) (up time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	p.set(func(st *Status) { st.State, st.Reason, st.PID = Starting, "", 0 })
	args, env := p.spec.Command(p.s.knownNow())
	c, err := p.start(args, env)
	if err != nil {
		return 0, finalError{fmt.Errorf("cannot start: %w", err)}
	}
	p.set(func(st *Status) { st.PID = c.cmd.Process.Pid })

	if err := p.await(ctx, c); err != nil {
		p.end(ctx, c)
		if c.refused() && !errors.Is(err, errTimeout) {
			err = finalError{err}
		}
		return 0, err
	}
	began := time.Now()
	p.set(func(st *Status) { st.State, st.Reason = Ready, "" })
	if !p.wasReady {
		p.wasReady = true
		p.first <- nil
	}
	err = p.attend(ctx, c)
	up = time.Since(began)
	if ctx.Err() != nil {
		p.end(ctx, c)
		return up, ctx.Err()
	}
	c.replace(ctx, err, p.s.cfg.ReplaceTimeout)
	return up, err
}

// attend returns how the child ended, or why it has to.
func (p *process) attend(ctx context.Context, c *child) error {
	if !p.spec.foreign() {
		return c.alive(ctx, &p.s.cfg, p.s.knownNow()[p.spec.Name].Listen)
	}
	select {
	case <-c.exited:
		return c.exitError()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start runs the Spec's program.
func (p *process) start(args, env []string) (*child, error) {
	if p.spec.foreign() {
		return startForeign(&p.s.cfg, p.spec.Program, p.out, args, env)
	}
	return startRole(&p.s.cfg, p.s.lifelineRead, p.out, args, env)
}

// await returns once the child is ready, or says why it is not.
func (p *process) await(ctx context.Context, c *child) error {
	deadline := time.Now().Add(p.s.cfg.StartTimeout)
	if p.spec.foreign() {
		p.set(func(st *Status) { st.Address = p.spec.Address })
		return c.connectable(ctx, p.spec.Address, deadline)
	}
	l, err := c.listening(ctx, deadline)
	if err != nil {
		return err
	}
	p.s.setKnown(p.spec.Name, l)
	p.set(func(st *Status) {
		st.State, st.Address, st.Data, st.Model, st.Engine = Loading, l.Listen, l.Data, l.Model, l.Engine
	})
	return c.ready(ctx, l.Listen, deadline, func(reason string) {
		p.set(func(st *Status) { st.Reason = reason })
	})
}

// end makes sure that the child is gone: in order when the supervisor stops, at once when the child
// is of no use.
func (p *process) end(ctx context.Context, c *child) {
	select {
	case <-c.exited:
		return
	default:
	}
	if ctx.Err() == nil {
		c.kill()
		return
	}
	p.set(func(st *Status) { st.State, st.Reason = Stopping, "" })
	c.stop(p.kill)
}

// set changes the process's status and tells of it if anything changed.
func (p *process) set(change func(*Status)) { p.s.change(p.spec.Name, change) }
