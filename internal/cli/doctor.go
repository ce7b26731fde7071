// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/config"
	"afterimage/internal/store/mooncake"
)

// doctorTimeout bounds a look at a Store, the calls of which have limits of their own.
const doctorTimeout = time.Minute

// doctorCmd looks for what keeps this host from serving.
type doctorCmd struct {
	Store  string        `placeholder:"KIND" enum:",mooncake" default:"" help:"Look at this Store and the cluster behind it, instead of at this host: mooncake."`
	Client string        `name:"mooncake-client" key:"mooncake.client" placeholder:"HOST:PORT" help:"Where this host's mooncake_client takes calls."`
	Admin  string        `name:"mooncake-admin" key:"mooncake.admin" placeholder:"HOST:PORT" help:"The HTTP port of its master, to be looked at, too."`
	VLLM   bool          `name:"vllm" help:"Look at a fleet of vLLM workers as a gateway with --relay needs it: names and Store keys of Encoders, and whether workers can be written to. An Encoder encodes two small pictures."`
	Fleet  vllmFleet     `embed:"" group:"vllm"`
	Relay  config.Relay  `embed:"" group:"relay"`
	Role   string        `placeholder:"ROLE" enum:"up,store,encoder,prefill,decode,gateway" default:"up" help:"What is to run here: up, store, encoder, prefill, decode or gateway (default ${default})."`
	Only   []string      `placeholder:"CHECK" enum:"vectors,engine,model,memory,memlock,shm,files,ports,store,peers,clock,tls" help:"Make only these checks: vectors, engine, model, memory, memlock, shm, files, ports, store, peers, clock, tls."`
	JSON   bool          `help:"Print one JSON document instead of lines."`
	Model  config.Model  `embed:"" group:"model"`
	Engine config.Engine `embed:"" group:"engine"`
	File   string        `name:"config" short:"c" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read besides the environment. [$$AFTERIMAGE_CONFIG]"`
}

// Help is shown below the command's own line.
func (*doctorCmd) Help() string {
	return "Each line is ok, warn (works, with a drawback) or fail, and names the mend. The exit status is 1 if one of them fails, so --only tells a script how one check went. " +
		"It starts nothing and changes nothing; with --store mooncake it stores one small object, and removes it; with --vllm an Encoder encodes two small pictures, which stay in the Store until they are evicted."
}

// finding is one line of a diagnosis.
type finding = mooncake.Finding

// Run is called by the parser.
func (c *doctorCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	found := c.look(ctx, a)
	write := writeFindings
	if c.JSON {
		write = func(w io.Writer, found []finding) error {
			return json.NewEncoder(w).Encode(map[string]any{"findings": found})
		}
	}
	if err := write(a.Stdout, found); err != nil {
		return err
	}
	for _, f := range found {
		if f.Level == mooncake.Fail {
			return toldError{errors.New(f.Text)} // it stands in the output
		}
	}
	return nil
}

// look examines the host, or the Store if one is named.
func (c *doctorCmd) look(ctx context.Context, a *app) []finding {
	role := config.Role(c.Role)
	if c.Store == config.StoreMooncake {
		role = config.All
	}
	if c.VLLM {
		role = config.RoleGateway
	}
	l, err := a.loadFlags(role, c.File)
	if err == nil && !c.VLLM { // of which a part is enough
		a.warn(l)
		err = l.Validate(role)
	}
	if err != nil {
		return []finding{{Level: mooncake.Fail, Part: "configuration", Text: err.Error(), Mend: "'afterimage config print' shows where each value comes from"}}
	}
	if c.VLLM {
		return checkVLLM(ctx, l, a.Env)
	}
	if c.Store == config.StoreMooncake {
		return checkMooncake(ctx, l, a.Env)
	}
	token, err := gatewayToken(l.Fleet)
	if err != nil {
		return []finding{verdict("configuration", "", err, mooncake.Fail, "name a file that this user can read in fleet.token_file")}
	}
	h := checkup{env: a.Env, l: l, role: role, caches: caches(), client: admit.WithToken(&http.Client{Timeout: peerTimeout, Transport: &http.Transport{}}, token)}
	defer h.client.CloseIdleConnections()
	return h.check(ctx, c.Only)
}

// checkMooncake looks at the Store and the cluster behind it.
func checkMooncake(ctx context.Context, l *config.Loaded, env []string) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	file, found := checkMooncakeFile(env)
	address, server := mooncakeServer(l.Mooncake.Client, file)
	if !takesCalls(address) {
		address = l.Mooncake.Client
	}
	if l.Mooncake.Admin != "" {
		n, err := mooncake.CheckAdmin(ctx, l.Mooncake.Admin)
		found = append(found, verdict("mooncake.admin", fmt.Sprintf("the master at %s lists %d objects", l.Mooncake.Admin, n), err, mooncake.Warn,
			"name the HTTP port of the master (--metrics_port) in mooncake.admin"))
	}
	return append(found, mooncake.Probe(ctx, mooncake.Config{Addr: address, Logger: newLogger(io.Discard, l.Log)}, server)...)
}

// writeFindings writes a line for each finding, and one for its mend.
func writeFindings(w io.Writer, found []finding) error {
	width := 0
	for _, f := range found {
		width = max(width, len(f.Part))
	}
	for _, f := range found {
		text := f.Text
		if f.Mend != "" {
			text += "\n-> " + f.Mend
		}
		text = strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len("fail  ")+width+len("  ")))
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  %s\n", f.Level, width, f.Part, text); err != nil {
			return err
		}
	}
	return nil
}

// verdict is the finding about a part: ok with text, or err at level with its mend, "" where err names it.
func verdict(part, text string, err error, level mooncake.Level, mend string) finding {
	if err == nil {
		return finding{Level: mooncake.Fine, Part: part, Text: text}
	}
	return finding{Level: level, Part: part, Text: err.Error(), Mend: mend}
}

// checkMooncakeFile looks at the file that Mooncake's clients share, if the environment names one.
func checkMooncakeFile(env []string) (file config.MooncakeFile, found []finding) {
	warn := func(text string) {
		found = append(found, finding{Level: mooncake.Warn, Part: config.MooncakeEnv, Text: text})
	}
	m, err := config.LoadMooncakeFile(env, warn)
	if errors.Is(err, config.ErrNoMooncakeFile) {
		return m, nil
	}
	text := fmt.Sprintf("master %s, protocol %s, mode %s, tenant %s", m.MasterServerAddress, m.Protocol, m.Mode, m.TenantID)
	level := mooncake.Fail
	if err == nil && m.MasterServerAddress == "" {
		err, level = errNoMaster, mooncake.Warn // no harm while a mooncake_client answers
	}
	return m, append(found, verdict(config.MooncakeEnv, text, err, level, "mend the file, or unset the variable"))
}
