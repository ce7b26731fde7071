// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
)

// cluster starts a master and two mooncake_clients on free ports.
func (r *mooncakeRig) cluster(ctx context.Context, b MooncakeBench) error {
	var at [4]string
	for i := range at {
		var err error
		if at[i], err = freePort(); err != nil {
			return err
		}
	}
	local := func(port string) string { return net.JoinHostPort("127.0.0.1", port) }
	r.master, r.metrics, r.host, r.bare = local(at[0]), local(at[1]), local(at[2]), local(at[3])
	env := append(b.Env, "LD_LIBRARY_PATH="+b.Dir)
	run := func(program, address string, env []string, args ...string) (*child, error) {
		c, err := startChild(program, filepath.Join(b.Dir, program), args, env, func(string) bool { return false })
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, c)
		return c, c.listens(ctx, address)
	}
	if _, err := run("mooncake_master", r.master, env, "--rpc_address=127.0.0.1", "--rpc_port="+at[0], "--metrics_host=127.0.0.1",
		"--metrics_port="+at[1], "--rpc_thread_num=4", "--client_ttl=30", "--default_kv_lease_ttl="+strconv.Itoa(leaseMS), "--minloglevel=1"); err != nil {
		return err
	}
	for i, node := range []mooncake.Server{
		{Host: "127.0.0.1", Port: at[2], Master: r.master, SegmentBytes: b.SegmentBytes},
		{Host: "127.0.0.1", Port: at[3], Master: r.master},
	} {
		c, err := run("mooncake_client", local(node.Port), append(env, node.Env()...), node.Args()...)
		if err != nil {
			return err
		}
		if i == 0 {
			r.node = c
		}
	}
	return nil
}

// listens waits until c takes connections at address.
func (c *child) listens(ctx context.Context, address string) error {
	return poll(ctx, c.name+" takes connections", func() (bool, error) {
		select {
		case <-c.exited:
			return false, fmt.Errorf("bench: %s ended before it was ready (%v); its last lines:\n%s", c.name, c.status, c.lastLines())
		default:
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
}

// warm has the storage node write to most of its memory once: Mooncake does not fault it in.
func (r *mooncakeRig) warm(ctx context.Context, segmentBytes int64) error {
	const piece = 16 << 20
	buf, err := r.arena.Reserve(piece)
	if err != nil {
		return err
	}
	defer buf.Release()
	clear(buf.Bytes())
	buf.Commit()
	var keys []embedding.Key
	for i := range segmentBytes * 8 / 10 / piece {
		key := benchNamespace.Key(embedding.Identifier(fmt.Sprintf("warm-%d", i)))
		if err := r.local.Put(ctx, key, buf, store.PutOptions{}); err != nil {
			return err
		}
		keys = append(keys, key)
	}
	return r.local.Remove(ctx, keys)
}
