// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
)

// masterHTTP is the port at which a mooncake_master answers HTTP unless told otherwise.
const masterHTTP = "9003"

// leaseWait is longer than the leases of a master usually are. To ask for a key leases it, and a tool that
// ends has nobody to remove in the background what is leased.
const leaseWait = 30 * time.Second

// mooncakeShelf is the cluster that l and MOONCAKE_CONFIG_PATH describe, through the mooncake_client of this
// host. It is a fault that none answers.
func mooncakeShelf(l *config.Loaded, env []string, named bool) (*shelfTool, error) {
	file, err := config.LoadMooncakeFile(env, func(string) {}) // the workers tell
	if err != nil && !errors.Is(err, config.ErrNoMooncakeFile) {
		return nil, usageError{err}
	}
	address, server := mooncakeServer(l.Mooncake.Client, file)
	if !takesCalls(address) {
		address = l.Mooncake.Client
	}
	if !takesCalls(address) {
		return nil, fmt.Errorf("no mooncake_client answers at %s; name another with --mooncake-client, or start it:\n%s", address, server.Command())
	}
	admin := mooncakeAdmin(l.Mooncake.Admin, file)
	t := &shelfTool{path: "Mooncake at " + address, flag: "--store-kind mooncake --mooncake-client " + address,
		named: named && l.Source("mooncake.client") != "default", mapped: true}
	t.blind = "name the HTTP port of its mooncake_master with --mooncake-admin"
	if admin != "" {
		t.blind = fmt.Sprintf("no mooncake_master answers HTTP at %s, name another place with --mooncake-admin", admin)
	}
	cfg := clientConfig(l.Mooncake, address, &process{log: newLogger(io.Discard, l.Log)})
	cfg.RemoveWait = leaseWait
	t.connect = func(ctx context.Context, memory *arena.Arena) (store.Store, error) {
		return joinMooncake(ctx, cfg, admin, memory)
	}
	return t, nil
}

// mooncakeAdmin returns where the master answers HTTP: as configured, or else at its usual port; "" if no master is known.
func mooncakeAdmin(configured string, file config.MooncakeFile) string {
	if configured == "" && file.MasterServerAddress != "" {
		return net.JoinHostPort(host(file.MasterServerAddress), masterHTTP)
	}
	return configured
}

// joinMooncake connects, and asks the master for lists if it answers at admin.
func joinMooncake(ctx context.Context, cfg mooncake.Config, admin string, memory *arena.Arena) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, mooncakeOpenTimeout)
	defer cancel()
	c, err := mooncake.Open(ctx, cfg, memory)
	if err == nil {
		if err = c.Wait(ctx); err != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mooncake_client at %s: %w; 'afterimage doctor --store mooncake' looks closer", cfg.Addr, err)
	}
	if admin != "" && takesCalls(admin) {
		return mooncake.NewListing(c, admin), nil
	}
	return c, nil
}
