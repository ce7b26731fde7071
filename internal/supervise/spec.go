// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"time"
)

// State is where a process is in its life.
type State string

// The states of a process.
const (
	Waiting  State = "waiting"  // an earlier stage is not ready
	Starting State = "starting" // runs, does not listen
	Loading  State = "loading"  // listens, is not ready
	Ready    State = "ready"
	Down     State = "down" // died; it starts again after the back-off
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed" // stays down
)

// Listening is what a child says once, when its listeners are open.
type Listening struct {
	Listen string `json:"listen"`         // host:port of its HTTP server
	Data   string `json:"data,omitempty"` // address of its other listener, if it has one
	PID    int    `json:"pid"`
	Model  string `json:"model,omitempty"` // name for the table
	// Engine says what computes, and why that.
	Engine string `json:"engine,omitempty"`
	// Refused is why the process ends instead of listening; the other fields are empty then.
	Refused string `json:"refused,omitempty"`
}

// Known holds what each process said when it last listened, by name.
type Known map[string]Listening

// Spec describes one process.
type Spec struct {
	Name string // unique, e.g. "encoder-0"
	Role string // e.g. "encoder"
	// Stage orders the start: processes of one stage start side by side once all of the stage before
	// are ready. They stop in reverse.
	Stage int
	// Command returns the arguments and additions to the environment of one start. With the entry
	// of the process itself in known, it is a restart and must ask for the addresses given there.
	Command func(known Known) (args, env []string)
	// Program, if set, is the path of another program to run instead of Config.Binary. It knows nothing
	// of the pipes: it is ready once it takes connections at Address, and the kernel kills it when the
	// supervisor is gone. Its working directory is the run directory.
	Program string
	Address string // host:port that Program is told to listen on; required with it
	// Noise are parts of lines that Program prints when all is well. Such lines are not passed on to
	// Config.Logs; the files of LogDir have them.
	Noise []string
}

// foreign says whether the program is one that knows nothing of its supervisor.
func (s *Spec) foreign() bool { return s.Program != "" }

// Status is a snapshot of one process.
type Status struct {
	Name, Role string
	State      State
	Reason     string // why it is not ready; "" when it is
	Address    string // of its HTTP server; "" until it listens
	Data       string
	Model      string
	Engine     string // as Listening.Engine
	PID        int    // 0 while it does not run
	Restarts   int
}

// Config says what to run and how patient to be. Zero durations take their default.
type Config struct {
	Binary string // the program that every child runs
	Arg0   string // its name in process lists; "" is Binary
	Specs  []Spec
	// RunDir is the private directory of this run (MakeRunDir). It is removed by Stop, or by the
	// children when the supervisor is killed.
	RunDir string
	// Logs receives the children's output, each line behind the name of its process. With LogDir it
	// goes to <LogDir>/<name>.log instead.
	Logs   io.Writer
	LogDir string
	Log    *slog.Logger
	// OnChange, if set, is called with each change of a process, one call at a time. It must not call
	// the Supervisor.
	OnChange func(Status)

	StartTimeout time.Duration // from a start to ready, 2 min
	StopTimeout  time.Duration // for all processes together, 4.5 s
	// A role that is ready is asked for /livez every LiveEvery (5 s). It is restarted once it says that it
	// should be, within ReplaceTimeout (4.5 s) for its requests, or was silent LiveMisses times (6).
	LiveEvery      time.Duration
	LiveMisses     int
	ReplaceTimeout time.Duration
	BackoffMin     time.Duration // 100 ms
	BackoffMax     time.Duration // 5 s
	BackoffReset   time.Duration // a process that was ready this long starts again at BackoffMin, 30 s
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.StartTimeout, 2*time.Minute)
	def(&c.StopTimeout, 4500*time.Millisecond)
	def(&c.LiveEvery, 5*time.Second)
	def(&c.ReplaceTimeout, 4500*time.Millisecond)
	c.LiveMisses = cmp.Or(c.LiveMisses, 6)
	def(&c.BackoffMin, 100*time.Millisecond)
	def(&c.BackoffMax, 5*time.Second)
	def(&c.BackoffReset, 30*time.Second)
	if c.Logs == nil {
		c.Logs = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	if c.Binary == "" {
		return errors.New("supervise: no binary to run")
	}
	if len(c.Specs) == 0 {
		return errors.New("supervise: no processes to run")
	}
	seen := map[string]bool{}
	for _, s := range c.Specs {
		if s.Name == "" || s.Command == nil || seen[s.Name] {
			return errors.New("supervise: process " + s.Name + " needs a name of its own and a command")
		}
		if s.foreign() != (s.Address != "") {
			return errors.New("supervise: process " + s.Name + " needs both a program of its own and its address, or neither")
		}
		seen[s.Name] = true
	}
	return nil
}
