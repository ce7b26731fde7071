// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/vllm"
	"afterimage/internal/vllm/consumer"
)

// vllmFleet are the flags of doctor that name vLLM workers.
type vllmFleet struct {
	Encoders  []string `name:"encode-servers-urls" key:"vllm.encode_servers_urls" placeholder:"URL" help:"vLLM Encoders, of which the first is asked."`
	Consumers []string `name:"ec-consumer-zmq-addrs" key:"vllm.ec_consumer_zmq_addrs" placeholder:"ADDR" help:"Control addresses of the workers that take embeddings."`
}

// Times of looking at a vLLM fleet.
const (
	encodeTimeoutVLLM = 30 * time.Second
	publishTimeout    = 10 * time.Second // from an Encoder's answer until its output is in the Store
)

// checkVLLM looks at a fleet of vLLM workers as a relay needs it: what Encoders call pictures, under which keys they store
// them, and whether consumers can be written to. An Encoder encodes one small picture that nobody has seen.
func checkVLLM(ctx context.Context, l *config.Loaded, env []string) (found []finding) {
	v := l.VLLM
	if len(v.EncodeServersURLs) == 0 {
		return []finding{{Level: mooncake.Fail, Part: "encoder", Text: "no vLLM Encoder is named", Mend: "name one with --encode-servers-urls"}}
	}
	token, err := gatewayToken(l.Fleet)
	if err != nil {
		return []finding{verdict("configuration", "", err, mooncake.Fail, "name a file that this user can read in fleet.token_file")}
	}
	client := admit.WithToken(&http.Client{Timeout: encodeTimeoutVLLM, Transport: &http.Transport{}}, token)
	defer client.CloseIdleConnections()
	url := strings.TrimRight(strings.TrimSpace(v.EncodeServersURLs[0]), "/")
	file := vllm.FreshPicture()
	model, err := vllm.AskModel(ctx, client, url)
	var named vllm.Named
	if err == nil {
		named, err = vllm.AskName(ctx, client, url, model, file, false)
	}
	found = append(found, verdict("encoder", fmt.Sprintf("%s encodes with %s: a picture of 56 x 56 is a grid of %v", url, model, named.Grid), err, mooncake.Fail,
		"start a vLLM Encoder, or name another with --encode-servers-urls"))
	if err == nil {
		found = append(found, checkName(named))
		unnamed := vllm.FreshPicture()
		auto, err := vllm.AskName(ctx, client, url, model, unnamed, true)
		names, stored := checkVLLMStore(ctx, l, env, named)
		found = append(found, checkAutomatic(names.Model, unnamed, auto.Hash, err))
		found = append(found, stored...)
	}
	return append(found, checkConsumers(ctx, v.ECConsumerZMQAddrs)...)
}

// checkName holds the rule that a relay names pictures by against what the engine said.
func checkName(n vllm.Named) finding {
	var err error
	if n.Hash != n.Sent {
		err = fmt.Errorf("a picture that was sent as %s is called %s", n.Sent, n.Hash)
	}
	return verdict("names", "the engine keeps the name that a picture is sent under", err, mooncake.Fail,
		"start Encoders without defaults for mm_processor_kwargs and media_io_kwargs: they become part of names, and the relay finds nothing")
}

// checkAutomatic compares vLLM's own names with those that Afterimage's Encoders give with encoder.protocol = v3.
// Relays do not need them.
func checkAutomatic(model string, file []byte, hash string, err error) finding {
	for _, algorithm := range []string{"blake3", "sha256", "sha512"} {
		naming := embedding.VLLMNaming{Model: model, Hash: algorithm}
		if err == nil && model != "" && string(naming.Identifier(file, true)) == hash {
			return finding{Level: mooncake.Fine, Part: "automatic names", Text: "computed here they are the engine's, with " + algorithm}
		}
	}
	if err == nil {
		err = fmt.Errorf("a picture without a name is called %s, which is not computed here from the model %q", hash, model)
	}
	return verdict("automatic names", "", err, mooncake.Warn, "with encoder.protocol = v3, name in encoder.vllm_model what vLLM is given as its model; a relay needs no such names")
}

// checkVLLMStore looks for what the Encoder has just made: under the key where a relay with these names looks, and without
// names where the Encoder has put it. It returns the names too.
func checkVLLMStore(ctx context.Context, l *config.Loaded, env []string, n vllm.Named) (own embedding.Namespace, found []finding) {
	file, found := checkMooncakeFile(env)
	address, _ := mooncakeServer(l.Mooncake.Client, file)
	if !takesCalls(address) {
		address = l.Mooncake.Client
	}
	own, configured, err := namesToCheck(l)
	if err != nil {
		return own, append(found, finding{Level: mooncake.Fail, Part: "keys", Text: err.Error(), Mend: "name the model as in the keys of the Store with --relay-model, or leave all of [relay]'s names out"})
	}
	theirs, err := readNames(ctx, mooncakeAdmin(l.Mooncake.Admin, file), n)
	switch {
	case err == nil:
		found = append(found, finding{Level: mooncake.Fine, Part: "namespace", Text: "it stores under " + theirs.String()})
	case configured:
		found = append(found, verdict("namespace", "", err, mooncake.Warn, "name the HTTP port of the master in --mooncake-admin to see under which names it stores"))
	default:
		return own, append(found, verdict("namespace", "", err, mooncake.Fail,
			"Encoders need cross_encoder_cache; name the HTTP port of their Mooncake master in --mooncake-admin, or their names in [relay]"))
	}
	if !configured {
		own = theirs
	} else if err == nil && own.String() != theirs.String() {
		return own, append(found, finding{Level: mooncake.Fail, Part: "keys", Text: "[relay] says " + own.String(), Mend: "set " + theirNames(theirs) + ", or leave all of them out"})
	}
	key := own.Key(embedding.Identifier(n.Hash))
	text, err := readVLLM(ctx, mooncake.Config{Addr: address, Logger: newLogger(io.Discard, l.Log)}, key)
	return own, append(found, verdict("keys", text, err, mooncake.Fail,
		"compare with 'afterimage store ls --store-kind mooncake' and mend the keys of [relay]; Encoders need cross_encoder_cache"))
}

// namesToCheck returns the namespace of [relay], if one is configured.
func namesToCheck(l *config.Loaded) (n embedding.Namespace, configured bool, err error) {
	if l.Relay.Model == "" {
		return n, false, nil
	}
	n, _, err = relayNames(l.Config, nil)
	return n, true, errors.Join(err, n.Validate())
}

// readNames reads off the Store under which names an Encoder stores.
func readNames(ctx context.Context, admin string, n vllm.Named) (embedding.Namespace, error) {
	if admin == "" {
		return embedding.Namespace{}, errors.New("it is not known where the Mooncake master answers HTTP")
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return vllm.ReadNamespace(ctx, mooncake.NewListing(nil, admin), n.Hash)
}

// theirNames are the settings of [relay] that make a namespace.
func theirNames(n embedding.Namespace) string {
	revision := n.Revision
	if revision == "default" {
		revision = ""
	}
	return fmt.Sprintf("relay.prefix = %q, relay.model = %q, relay.revision = %q, relay.encoder = %q, relay.dtype = %q", n.Prefix, n.Model, revision, n.Encoder,
		strings.TrimPrefix(n.DType.String(), "torch."))
}

// readVLLM waits for an object and says what it is.
func readVLLM(ctx context.Context, cfg mooncake.Config, key embedding.Key) (text string, err error) {
	const most = 4 << 20
	memory, err := arena.New(arena.Config{Name: "afterimage-doctor", Bytes: 4 * most, Mapped: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, memory.Detach()) }()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	c, err := mooncake.Open(ctx, cfg, memory)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Wait(ctx); err != nil {
		return "", err
	}
	for {
		got := c.Get(ctx, []store.Want{{Key: key, Bytes: most}})[0]
		if got.Err == nil {
			defer got.Buf.Release()
			_, m, _, err := embedding.Inspect(got.Buf.Bytes(), key)
			return fmt.Sprintf("what it made is in the Store, %d x %d of %v, under %s", m.Rows, m.Cols, m.DType, key), err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("what it made is not in the Store under %s: %w", key, got.Err)
		}
	}
}

// checkConsumers asks every consumer whether it can be written to.
func checkConsumers(ctx context.Context, addresses []string) (found []finding) {
	c := consumer.New(consumer.Config{})
	defer c.Close()
	for _, at := range addresses {
		n, err := c.Check(ctx, at)
		found = append(found, verdict("consumer", fmt.Sprintf("%s: %s that can be written to", at, counted(n, "shard")), err, mooncake.Fail,
			"start the worker with ECMooncakeConnector, mooncake_protocol tcp and MC_FORCE_TCP=1, or mend its address"))
	}
	return found
}
