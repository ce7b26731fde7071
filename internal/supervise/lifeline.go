// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The environment by which a child learns of its supervisor.
const (
	EnvLifeline = "AFTERIMAGE_LIFELINE_FD"
	EnvNotify   = "AFTERIMAGE_NOTIFY_FD"
	EnvRunDir   = "AFTERIMAGE_RUN_DIR"
)

// orphanGrace is how long an orphan has to end in order. Native code that runs then is cut off.
const orphanGrace = 1500 * time.Millisecond

// ErrOrphaned is the cause with which a Lifeline context ends when the supervisor is gone.
var ErrOrphaned = errors.New("supervise: the supervisor is gone")

// Lifeline returns a context that ends with cause ErrOrphaned when the supervisor of this process is
// gone; a process without one gets a plain child of ctx. An orphan removes the run directory and, if
// it has not exited by itself shortly after, is ended with status 1. The caller must call the
// returned function.
func Lifeline(ctx context.Context) (context.Context, context.CancelFunc) {
	f, err := inherited(EnvLifeline)
	if f == nil || err != nil {
		return context.WithCancel(ctx)
	}
	// The supervisor also read what this process logs; without this, logging kills an orphan before
	// it has tidied up.
	signal.Ignore(syscall.SIGPIPE)
	return lifeline(ctx, f, os.Getenv(EnvRunDir), orphanGrace, os.Exit)
}

// lifeline is Lifeline with its surroundings as parameters. It owns pipe.
func lifeline(ctx context.Context, pipe io.ReadCloser, runDir string, grace time.Duration, exit func(int)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.Copy(io.Discard, pipe)
		if errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
			return // given up by this process itself
		}
		time.AfterFunc(grace, func() { exit(1) })
		_ = removeRunDir(runDir)
		cancel(ErrOrphaned)
	}()
	return ctx, func() {
		cancel(context.Canceled)
		_ = pipe.Close()
		<-done
	}
}

// Notify tells the supervisor where this process listens. It does nothing without a supervisor, and
// is called once.
func Notify(l Listening) error {
	l.PID = os.Getpid()
	_, err := tell(l)
	return err
}

// Refuse tells the supervisor why this process ends before it listens. The supervisor reports it to
// the user, so that a cause which several processes meet is told once. It returns false when there is
// no supervisor to tell, or when Notify has been called.
func Refuse(cause error) bool {
	told, err := tell(Listening{Refused: cause.Error()})
	return told && err == nil
}

// tell writes to the notify pipe, which takes one message.
func tell(l Listening) (told bool, err error) {
	f, err := inherited(EnvNotify)
	if f == nil || err != nil {
		return false, err
	}
	defer f.Close()
	// The number may become another file's.
	if err := os.Unsetenv(EnvNotify); err != nil {
		return false, err
	}
	// A supervisor that does not listen any more is about to stop this process.
	if err := json.NewEncoder(f).Encode(l); err != nil && !errors.Is(err, syscall.EPIPE) {
		return false, fmt.Errorf("supervise: notify: %w", err)
	}
	return true, nil
}

// Supervised says whether this process has a supervisor.
func Supervised() bool { return os.Getenv(EnvLifeline) != "" }

// inherited opens the file descriptor that the variable env names; nil without one.
func inherited(env string) (*os.File, error) {
	text := os.Getenv(env)
	if text == "" {
		return nil, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("supervise: %s=%q is no file descriptor; unset it when starting a role by hand", env, text)
	}
	syscall.CloseOnExec(fd)
	// Non-blocking, so that a Close ends a Read.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("supervise: %s=%q: %w; unset it when starting a role by hand", env, text, err)
	}
	return os.NewFile(uintptr(fd), env), nil
}
