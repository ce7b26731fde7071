// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/arena"
)

// Role names the part of the program that a configuration is checked for.
type Role string

// The roles. All stands for the shared tables and every role's own.
const (
	RoleUp      Role = "up"
	RoleStore   Role = "store"
	RoleEncoder Role = "encoder"
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleGateway Role = "gateway"
	All         Role = ""
)

// Problem is one value that cannot be used.
type Problem struct {
	Key    string
	Value  string
	Source string // where the value comes from
	Fault  string // what is wrong with it, and the mend
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s = %q (%s): %s", p.Key, p.Value, p.Source, p.Fault)
}

// Validate checks the values that role reads. The error joins one Problem per fault.
func (l *Loaded) Validate(role Role) error {
	c := checker{l: l, role: role}
	c.shared()
	c.store()
	c.mooncake()
	c.encoder()
	c.prefill()
	c.decode()
	c.gateway()
	return errors.Join(c.errs...)
}

// checker collects Problems.
type checker struct {
	l    *Loaded
	role Role
	errs []error
}

// is says whether one of roles is checked.
func (c *checker) is(roles ...Role) bool { return c.role == All || slices.Contains(roles, c.role) }

// fault records a Problem with key.
func (c *checker) fault(key, format string, args ...any) {
	k, _ := keyNamed(key)
	c.errs = append(c.errs, &Problem{
		Key: key, Value: k.Shown(&c.l.Config), Source: c.l.Source(key), Fault: places(fmt.Sprintf(format, args...)),
	})
}

func (c *checker) oneOf(key, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	c.fault(key, "unknown; use %s", strings.Join(allowed, " or "))
}

func (c *checker) atLeast(key string, value, least int64, unit string) {
	if value < least {
		c.fault(key, "too small; give at least %d%s", least, unit)
	}
}

func (c *checker) atMost(key string, value, most int64, why string) {
	if value > most {
		c.fault(key, "too large; give at most %d: %s", most, why)
	}
}

func (c *checker) bytes(key string, value, least Bytes) {
	if value < least {
		c.fault(key, "too small; give at least %v", least)
	}
	if value > math.MaxInt {
		c.fault(key, "larger than this machine can address")
	}
}

// memory checks the size of an arena, which lies in RAM as a whole from the start.
func (c *checker) memory(key string, value Bytes) {
	c.bytes(key, value, MiB)
	if limit, whose := arena.Limit(); int64(value) > limit {
		c.fault(key, "more than the %s, %.1f GiB; lower it", whose, float64(limit)/float64(GiB))
	}
}

func (c *checker) duration(key string, value Duration, least time.Duration) {
	if time.Duration(value) < least {
		c.fault(key, "too short; give at least %v", least)
	}
}

// address checks host:port, where the host may be empty and port 0 means any.
func (c *checker) address(key, value string) {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		c.fault(key, "no address; write HOST:PORT, e.g. 127.0.0.1:8000")
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		c.fault(key, "%q is no port; give a number from 0 (any free one) to 65535", port)
	}
}

// dataAddress checks an address that a worker tells senders, which has to be one that they can dial.
func (c *checker) dataAddress(key, value, senders string) {
	c.address(key, value)
	if host, _, err := net.SplitHostPort(value); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		c.fault(key, "no address to send to; name one of this host's that %s can reach", senders)
	}
}

func (c *checker) urls(key string, list []string) {
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			c.fault(key, "%q is no worker; write http://HOST:PORT", s)
		}
	}
}

// receiver checks a URL that is posted to.
func (c *checker) receiver(key, value string) {
	if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		c.fault(key, "no URL; write http://HOST:PORT or https://HOST:PORT, e.g. http://127.0.0.1:4318")
	} else if n, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || n < 1 || n > 65535) {
		c.fault(key, "%q is no port; give a number from 1 to 65535", u.Port())
	}
}

// file checks that a file is there to be read.
func (c *checker) file(key, path, what string) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.fault(key, "no such file; give the path of %s", what)
	case err != nil:
		c.fault(key, "%v; give the path of %s", plain(err), what)
	case !st.Mode().IsRegular():
		c.fault(key, "not a file; give the path of %s", what)
	default:
		f, err := os.Open(path)
		if err != nil {
			c.fault(key, "%v; give a file that this user can read", plain(err))
			return
		}
		f.Close()
	}
}

// folder checks that a folder is there.
func (c *checker) folder(key, path, what string) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.fault(key, "no such folder; give %s", what)
	case err != nil:
		c.fault(key, "%v; give %s", plain(err), what)
	case !st.IsDir():
		c.fault(key, "not a folder; give %s", what)
	}
}
