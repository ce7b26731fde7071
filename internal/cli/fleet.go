// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"

	"afterimage/internal/config"
	"afterimage/internal/supervise"
)

// The stages in which a fleet starts.
const (
	stageMaster = iota
	stageStore
	stageWorkers
	stageGateway
)

// anyPort is where workers listen at their first start.
const anyPort = "127.0.0.1:0"

// socketName is the Store's socket in the run directory.
const socketName = "store.sock"

// fleet describes the processes of up. file is the configuration of all, socket that of the Store.
func fleet(cfg config.Config, file, socket string) []supervise.Spec {
	r := roster{file: file}
	if cfg.Store.Kind == config.StoreRAM {
		r.add("store", config.RoleStore, stageStore, func(known supervise.Known) []string {
			return []string{"--listen", portAgain(known["store"].Listen), "--path", socket}
		})
	} else {
		socket = ""
	}
	encoders := r.workers(config.RoleEncoder, cfg.Up.Encoders, func(supervise.Listening) []string {
		return []string{"--store=" + socket}
	})
	prefills := r.workers(config.RolePrefill, 1, func(before supervise.Listening) []string {
		return []string{"--store=" + socket, "--data-listen", portAgain(before.Data)}
	})
	decodes := r.workers(config.RoleDecode, cfg.Up.Decodes, func(before supervise.Listening) []string {
		return []string{"--data-listen", portAgain(before.Data)}
	})
	r.add("gateway", config.RoleGateway, stageGateway, func(known supervise.Known) []string {
		args := []string{"--listen", cmp.Or(known["gateway"].Listen, cfg.Gateway.Listen), "--store-socket=" + socket}
		args = append(args, urls("--encoder", encoders, known)...)
		args = append(args, urls("--decode", decodes, known)...)
		return append(args, urls("--prefill", prefills, known)...)
	})
	return r.specs
}

// roster collects the processes of a fleet.
type roster struct {
	file  string // the configuration of all
	specs []supervise.Spec
}

// add describes one process; args returns its flags besides those that all have.
func (r *roster) add(name string, role config.Role, stage int, args func(supervise.Known) []string) {
	r.specs = append(r.specs, supervise.Spec{Name: name, Role: string(role), Stage: stage,
		Command: func(known supervise.Known) ([]string, []string) {
			return append([]string{string(role), "--config", r.file}, args(known)...), nil
		}})
}

// workers describes n processes of a role and returns their names. args returns the flags besides those that all
// workers have; before is where the process listened the last time.
func (r *roster) workers(role config.Role, n int, args func(before supervise.Listening) []string) (names []string) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", role, i)
		names = append(names, name)
		r.add(name, role, stageWorkers, func(known supervise.Known) []string {
			return append([]string{"--listen", portAgain(known[name].Listen), "--name", name}, args(known[name])...)
		})
	}
	return names
}

// portAgain is where a process listens that has listened at an address before, "" for never.
func portAgain(before string) string { return cmp.Or(before, anyPort) }

// urls names processes that listen, each behind a flag.
func urls(flag string, names []string, known supervise.Known) (args []string) {
	for _, name := range names {
		args = append(args, flag, "http://"+known[name].Listen)
	}
	return args
}
