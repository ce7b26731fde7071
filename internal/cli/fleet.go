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
	var specs, workers []supervise.Spec
	// add describes one process; args returns its flags besides those that all have.
	add := func(list *[]supervise.Spec, name string, role config.Role, stage int, args func(supervise.Known) []string) {
		*list = append(*list, supervise.Spec{Name: name, Role: string(role), Stage: stage,
			Command: func(known supervise.Known) ([]string, []string) {
				return append([]string{string(role), "--config", file}, args(known)...), nil
			}})
	}
	again := func(known supervise.Known, name string) string { return cmp.Or(known[name].Listen, anyPort) }

	if cfg.Store.Kind == config.StoreRAM {
		add(&specs, "store", config.RoleStore, stageStore, func(known supervise.Known) []string {
			return []string{"--listen", again(known, "store"), "--path", socket}
		})
	} else {
		socket = ""
	}
	var encoders []string
	for i := range cfg.Up.Encoders {
		name := fmt.Sprintf("encoder-%d", i)
		encoders = append(encoders, name)
		add(&workers, name, config.RoleEncoder, stageWorkers, func(known supervise.Known) []string {
			return []string{"--listen", again(known, name), "--name", name, "--store=" + socket}
		})
	}
	const prefill = "prefill-0"
	add(&workers, prefill, config.RolePrefill, stageWorkers, func(known supervise.Known) []string {
		return []string{"--listen", again(known, prefill), "--name", prefill, "--store=" + socket,
			"--data-listen", cmp.Or(known[prefill].Data, anyPort)}
	})
	var decodes []string
	for i := range cfg.Up.Decodes {
		name := fmt.Sprintf("decode-%d", i)
		decodes = append(decodes, name)
		add(&workers, name, config.RoleDecode, stageWorkers, func(known supervise.Known) []string {
			return []string{"--listen", again(known, name), "--name", name, "--data-listen", cmp.Or(known[name].Data, anyPort)}
		})
	}
	specs = append(specs, workers...)
	add(&specs, "gateway", config.RoleGateway, stageGateway, func(known supervise.Known) []string {
		args := []string{"--listen", cmp.Or(known["gateway"].Listen, cfg.Gateway.Listen), "--store-socket=" + socket}
		for _, name := range encoders {
			args = append(args, "--encoder", "http://"+known[name].Listen)
		}
		for _, name := range decodes {
			args = append(args, "--decode", "http://"+known[name].Listen)
		}
		return append(args, "--prefill", "http://"+known[prefill].Listen)
	})
	return specs
}
