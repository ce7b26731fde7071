// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Relay has a gateway before vLLM workers bring what the Mooncake Store has to them, without their Encoders.
type Relay struct {
	Enabled     bool   `toml:"enabled" key:"relay.enabled" name:"relay" help:"Bring images whose embeddings are in the Mooncake Store to the workers that prefill, so that no Encoder is asked. The workers take embeddings with ECMooncakeConnector over TCP, the Encoders share theirs with cross_encoder_cache."`
	Model       string `toml:"model" key:"relay.model" name:"relay-model" placeholder:"PATH" help:"The model path or name in the Encoders' Store keys: embedding_model_identity, or else what vLLM is given as its model. Empty: this and the other fields of the keys are read off an Encoder, which encodes one small picture for it at each start; mooncake.admin, or port 9003 of the master that MOONCAKE_CONFIG_PATH names, lists what it stored."`
	Revision    string `toml:"revision" key:"relay.revision" name:"relay-revision" placeholder:"TEXT" help:"The model's revision in them; empty if vLLM is given none."`
	Prefix      string `toml:"prefix" key:"relay.prefix" name:"relay-prefix" placeholder:"TEXT" help:"The Encoders' embedding_cache_prefix."`
	Encoder     string `toml:"encoder" key:"relay.encoder" name:"relay-encoder" placeholder:"TEXT" help:"The encoder field of their keys, a hash of vLLM's settings for the multimodal encoder. The default is that of a vLLM that sets none."`
	DType       string `toml:"dtype" key:"relay.dtype" name:"relay-dtype" placeholder:"DTYPE" help:"vLLM's model dtype: bfloat16, float16 or float32."`
	MemoryBytes Bytes  `toml:"memory_bytes" key:"relay.memory_bytes" name:"relay-memory-bytes" placeholder:"SIZE" help:"Memory for the embeddings that are on their way. What finds no room goes to Encoders; one that is larger than a quarter of it always does."`
	State       string `toml:"state" key:"relay.state" name:"relay-state" placeholder:"FILE" help:"File in which is written down what the next gateway has to give up if this one is killed, and what was learned of pictures. Each gateway needs its own. Empty: relay-PORT.json in the user's state folder."`
}

// minRelayArena holds a few embeddings of large pictures.
const minRelayArena = 16 * MiB

// relay checks the way from the Store to vLLM workers.
func (c *checker) relay(v *VLLM) {
	r := &c.l.Config.Relay
	if !r.Enabled {
		return
	}
	switch {
	case v.NoRewrite:
		c.fault("relay.enabled", "decode workers that get images as they are encode them for themselves; leave it or vllm.no_rewrite out")
	case !v.DynamicRegistration && len(v.ECConsumerZMQAddrs) == 0:
		c.fault("relay.enabled", "no worker has a control address to bring embeddings to; name them in vllm.ec_consumer_zmq_addrs")
	}
	for _, a := range v.ECConsumerZMQAddrs {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(a, "tcp://"))
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			c.fault("vllm.ec_consumer_zmq_addrs", "%q cannot be called by the relay; write tcp://HOST:PORT", a)
		}
	}
	if r.Model == "" {
		c.unnamed(r)
	}
	if r.Encoder == "" {
		c.fault("relay.encoder", "missing; leave the key out for the default, or take what 'afterimage store ls' shows behind @encoder:")
	}
	c.oneOf("relay.dtype", r.DType, "bfloat16", "float16", "float32")
	c.bytes("relay.memory_bytes", r.MemoryBytes, minRelayArena)
	c.relayState(r)
	c.cluster()
}

// relayState checks that the state can be written. What is missing of its folders, the relay makes.
func (c *checker) relayState(r *Relay) {
	path, what := r.State, "give a path in a folder that this user can write to"
	if path == "" {
		var err error
		if path, err = RelayState(c.l.env, "PORT"); err != nil {
			c.fault("relay.state", "%v", err)
			return
		}
	}
	if st, err := os.Stat(path); err == nil {
		if !st.Mode().IsRegular() {
			c.fault("relay.state", "%s is no file; %s", path, what)
		} else if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
			c.fault("relay.state", "%s: %v; %s", path, err, what)
		}
	}
	folder := filepath.Dir(path)
	st, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		st, err = os.Stat(folder)
	}
	if err == nil && !st.IsDir() {
		err = unix.ENOTDIR
	}
	if err = cmp.Or(err, unix.Access(folder, unix.W_OK|unix.X_OK)); err != nil {
		c.fault("relay.state", "%s: %v; %s", folder, plain(err), what)
	}
}

// RelayState returns where a gateway at a port keeps what its successor has to know, unless relay.state names a file.
// env is as os.Environ.
func RelayState(env []string, port string) (string, error) {
	of := func(name string) (value string) {
		for _, kv := range env {
			if n, v, _ := strings.Cut(kv, "="); n == name {
				value = v
			}
		}
		return value
	}
	dir := of("XDG_STATE_HOME")
	if dir == "" {
		home := of("HOME")
		if home == "" {
			return "", errors.New("there is no folder for it, since neither XDG_STATE_HOME nor HOME is set; name a file")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "afterimage", "relay-"+port+".json"), nil
}

// unnamed checks a relay that reads the names off an Encoder.
func (c *checker) unnamed(r *Relay) {
	usual := DefaultConfig().Relay
	for _, f := range []struct{ key, value, usual string }{
		{"relay.revision", r.Revision, usual.Revision}, {"relay.prefix", r.Prefix, usual.Prefix},
		{"relay.encoder", r.Encoder, usual.Encoder}, {"relay.dtype", r.DType, usual.DType},
	} {
		if f.value != f.usual {
			c.fault(f.key, "a name without relay.model; name the model as in the keys of the Store, which 'afterimage store ls' shows behind @model:, or leave all of them to be read off an Encoder")
			return
		}
	}
	if m := c.l.Mooncake.Admin; m != "" {
		c.called("mooncake.admin", m, "of the master's HTTP server, e.g. 10.0.0.5:9003")
	}
}
