// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain lets scripts call this test binary as the program.
func TestMain(m *testing.M) {
	leaks := func() {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
	}
	testscript.Main(checked{m, leaks}, map[string]func(){"afterimage": func() {
		p := Program{Args: os.Args[1:], Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
		os.Exit(p.Main(context.Background()))
	}})
}

// checked runs the tests and then a check.
type checked struct {
	m    *testing.M
	then func()
}

func (c checked) Run() int {
	status := c.m.Run()
	if status == 0 {
		c.then()
	}
	return status
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
		// A program under the race detector sleeps a second before it exits, unless told not to.
		e.Setenv("GORACE", "atexit_sleep_ms=0")
		// An address at which nobody answers: a port that this test had and gave back.
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		e.Setenv("NOBODY", "http://"+ln.Addr().String())
		return ln.Close()
	}})
}

// Every leaf of the grammar has help, and every flag says what it is for.
func TestEveryFlagHasHelp(t *testing.T) {
	for _, leaf := range (Program{}).parser().Model.Leaves(true) {
		if leaf.Help == "" {
			t.Errorf("%s has no help", leaf.FullPath())
		}
		for _, f := range leaf.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", leaf.FullPath(), f.Name)
			}
		}
	}
}
