// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"strings"
	"time"

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
	client := &http.Client{Timeout: encodeTimeoutVLLM}
	defer client.CloseIdleConnections()
	url := strings.TrimRight(strings.TrimSpace(v.EncodeServersURLs[0]), "/")
	file := freshPNG()
	model, err := vllm.AskModel(ctx, client, url)
	var named vllm.Named
	if err == nil {
		named, err = vllm.AskName(ctx, client, url, model, file, false)
	}
	found = append(found, verdict("encoder", fmt.Sprintf("%s encodes with %s: a picture of 56 x 56 is a grid of %v", url, model, named.Grid), err, mooncake.Fail,
		"start a vLLM Encoder, or name another with --encode-servers-urls"))
	if err == nil {
		found = append(found, checkName(named))
		unnamed := freshPNG()
		auto, err := vllm.AskName(ctx, client, url, model, unnamed, true)
		found = append(found, checkAutomatic(l.Relay.Model, unnamed, auto.Hash, err))
		found = append(found, checkVLLMStore(ctx, l, env, named)...)
	}
	return append(found, checkConsumers(ctx, v.ECConsumerZMQAddrs)...)
}

// freshPNG is a small picture that nobody has seen.
func freshPNG() []byte {
	m := image.NewRGBA(image.Rect(0, 0, 56, 56))
	rand.Read(m.Pix)
	for i := 3; i < len(m.Pix); i += 4 {
		m.Pix[i] = 255
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m) // into memory
	return b.Bytes()
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

// checkVLLMStore looks for what the Encoder has just made, under the key where a relay looks.
func checkVLLMStore(ctx context.Context, l *config.Loaded, env []string, n vllm.Named) []finding {
	own := l.Relay
	dtype, err := embedding.ParseDType(own.DType)
	ns := embedding.Namespace{Prefix: own.Prefix, Model: own.Model, Revision: own.Revision, Encoder: own.Encoder, DType: dtype, Protocol: embedding.V3}
	if err = errors.Join(err, ns.Validate()); err != nil {
		return []finding{{Level: mooncake.Fail, Part: "keys", Text: err.Error(), Mend: "name the model as in the keys of the Store with --relay-model"}}
	}
	file, found := checkMooncakeFile(env)
	address, _ := mooncakeServer(l.Mooncake.Client, file)
	if !takesCalls(address) {
		address = l.Mooncake.Client
	}
	key := ns.Key(embedding.Identifier(n.Hash))
	text, err := readVLLM(ctx, mooncake.Config{Addr: address, Logger: newLogger(io.Discard, l.Log)}, key)
	return append(found, verdict("keys", text, err, mooncake.Fail,
		"compare with 'afterimage store ls --store-kind mooncake' and mend the keys of [relay]; Encoders need cross_encoder_cache"))
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
