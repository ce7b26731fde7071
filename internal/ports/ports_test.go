// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// envTake makes the test binary try to take a port and print what came of it.
const envTake = "AFTERIMAGE_TEST_TAKE"

func TestMain(m *testing.M) {
	if port, err := strconv.Atoi(os.Getenv(envTake)); err == nil {
		if take(port) == nil {
			print("taken")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// takenByOther says whether another process can take a port.
func takenByOther(t *testing.T, port int) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envTake+"="+strconv.Itoa(port))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Contains(string(out), "taken")
}

// A port that was taken can be listened at, and nobody else takes it until it is released.
func TestTake(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if port < first || port >= first+count {
		t.Errorf("port %d, want one of [%d, %d)", port, first, first+count)
	}
	ln, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if take(port) == nil || takenByOther(t, port) {
		t.Error("taken twice")
	}
	Release(port)
	if !takenByOther(t, port) {
		t.Error("not to be had after it was released")
	}
	Release(port) // does nothing
}

// A port at which somebody listens is not taken, and its claim not kept.
func TestTakeListenedAt(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	Release(port)
	ln, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	if take(port) == nil {
		t.Error("taken while somebody listens")
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := take(port); err != nil {
		t.Errorf("not to be had when nobody listens any more: %v", err)
	}
	Release(port)
}

// Ports that were taken differ.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		at, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		if seen[at] {
			t.Errorf("%s twice", at)
		}
		seen[at] = true
	}
	for at := range seen {
		_, port, _ := net.SplitHostPort(at)
		n, _ := strconv.Atoi(port)
		Release(n)
	}
}
