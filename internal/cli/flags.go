// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"afterimage/internal/config"
)

// common are the flags of every role.
type common struct {
	File   string        `name:"config" short:"c" group:"process" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read. Flags and environment win over it; 'afterimage config print FILE' shows what results. [$$AFTERIMAGE_CONFIG]"`
	Server config.Server `embed:"" group:"process"`
	Log    config.Log    `embed:"" group:"process"`

	Tracing config.Tracing `embed:"" group:"process"`
}

// upOwns are the keys that up works out itself, since it starts several workers on ports of its own.
var upOwns = []string{
	"store.listen", "store.path", "mooncake.client", "mooncake.admin", "mooncake.start_client", "mooncake.client_ttl", "encoder.listen", "encoder.name", "encoder.store",
	"prefill.listen", "prefill.data_listen", "prefill.name", "prefill.store", "gateway.encoders", "gateway.prefills", "gateway.store",
	"decode.listen", "decode.data_listen", "decode.name", "gateway.decodes",
}

// unused are the keys that come with a table and that the command does not read.
var unused = map[string][]string{
	"encoder": {"store.listen", "store.path", "store.bytes", "mooncake.admin", "mooncake.list_every"},
	"prefill": {"store.listen", "store.path", "store.bytes", "store.ttl", "store.tenant_quota_bytes", "delivery.overlap", "mooncake.admin", "mooncake.list_every"},
	"gateway": {"delivery.mode"},
}

// hide keeps flags that a command shares with others but refuses or does not read out of its help.
func hide(k *kong.Kong) {
	for _, node := range k.Model.Children {
		hidden := unused[node.Name]
		if node.Name == "up" {
			hidden = upOwns
		}
		for _, n := range append([]*kong.Node{node}, node.Children...) {
			for _, f := range n.Flags {
				f.Hidden = f.Hidden || slices.Contains(hidden, f.Tag.Get("key"))
			}
		}
	}
}

// load brings the configuration of role together and checks it. All faults are usage errors.
func (a *app) load(role config.Role, file string) (*config.Loaded, error) {
	l, err := a.loadFlags(role, file)
	if err != nil {
		return nil, err
	}
	a.warn(l)
	if err := l.Validate(role); err != nil {
		return nil, usageError{err}
	}
	return l, nil
}

// loadFlags is load without the check, for commands that run no role.
func (a *app) loadFlags(role config.Role, file string) (*config.Loaded, error) {
	in := config.Input{File: file, Env: a.Env, Flags: map[string]config.Flag{}}
	for _, p := range a.kong.Path {
		if p.Flag == nil {
			continue
		}
		if key := p.Flag.Tag.Get("key"); key != "" {
			if role == config.RoleUp && slices.Contains(upOwns, key) {
				return nil, usageError{fmt.Errorf("--%s: up chooses this itself for each worker; leave the flag out, or start the roles one by one", p.Flag.Name)}
			}
			value := p.Flag.Target.Interface()
			if kind, ok := value.(string); (key == "encoder.store" || key == "prefill.store") && ok && isStoreKind(kind) {
				key = "store.kind" // "--store mooncake" as with the other commands; a socket of that name is ./mooncake
			}
			in.Flags[key] = config.Flag{Name: "--" + p.Flag.Name, Value: value}
		}
	}
	l, err := config.Load(in)
	if err != nil {
		return nil, usageError{err}
	}
	if role == config.RoleEncoder || role == config.RolePrefill {
		err = joinNamedCluster(l, string(role)+".store", a.Env)
	}
	return l, err
}

func isStoreKind(text string) bool {
	return slices.Contains([]string{config.StoreRAM, config.StoreMooncake, config.StoreNone}, text)
}

// joinNamedCluster has a worker that is told of no Store, by socket or kind, join the cluster of
// MOONCAKE_CONFIG_PATH.
func joinNamedCluster(l *config.Loaded, socket string, env []string) error {
	if l.Source("store.kind") != "default" || l.Source(socket) != "default" || config.MooncakeFilePath(env) == "" {
		return nil
	}
	return l.Set("store.kind", config.StoreMooncake, "env "+config.MooncakeEnv)
}

// warn tells of variables that the user has set in vain.
func (a *app) warn(l *config.Loaded) {
	for _, name := range l.Unread {
		fmt.Fprintf(a.Stderr, "afterimage: warning: nothing reads the environment variable %s\n", name)
	}
}

// flagHelp adds the default and the environment variable to the help of a flag that has a key.
func flagHelp(v *kong.Value) string {
	name := v.Tag.Get("key")
	for _, k := range config.Keys() {
		if k.Name != name {
			continue
		}
		def := config.DefaultConfig()
		text := k.Text(&def)
		switch {
		case text == "" || v.IsBool() && text == "false":
			return fmt.Sprintf("%s [$%s]", v.Help, k.Env())
		default:
			return fmt.Sprintf("%s (default %s) [$%s]", v.Help, text, k.Env())
		}
	}
	return strings.TrimSpace(v.Help)
}
