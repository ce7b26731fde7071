// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/media"
	"afterimage/internal/proxy"
	"afterimage/internal/vllm"
)

// runVLLMFront serves the API before vLLM workers until ctx ends.
func runVLLMFront(ctx context.Context, cfg config.Config, p *process) (err error) {
	own, err := vllmConfig(cfg, os.Getenv)
	if err != nil {
		return err
	}
	own.Metrics, own.Tracer, own.Logger = p.registry, p.tracer, p.log
	door, shut, err := newDoor(cfg.Gateway, p)
	if err != nil {
		return err
	}
	defer shut()
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()
	if cfg.VLLM.Fetch == "gateway" {
		addFetcher(&own, cfg.Gateway, &parts)
	}
	if cfg.Relay.Enabled {
		if err := addRelay(ctx, &own, cfg, p, &parts); err != nil {
			return err
		}
	}
	f, err := vllm.New(own)
	if err != nil {
		return err
	}
	probes, stop := context.WithCancel(context.Background())
	f.Start(probes)
	defer func() {
		stop()
		f.Close()
	}()
	out := &exit{p: p, notice: time.Duration(cfg.Gateway.DrainNotice)}
	api := p.mux(out.unless(f.Ready), nil)
	f.Routes(api)
	if err := p.ready(""); err != nil {
		return err
	}
	return out.serve(ctx, besideHealth(f, out, door.Wrap(api)))
}

// addFetcher has the front get images behind URLs itself.
func addFetcher(own *vllm.Config, g config.Gateway, parts *closers) {
	own.Fetched = media.NewBudget(int64(g.FetchBudget))
	own.Fetcher = newFetcher(g, int64(g.MaxBodyBytes))
	own.Revisits = newRevisits(g, own.Fetcher)
	parts.add(func() error { own.Fetcher.Close(); return nil })
}

// addRelay has the front bring what the Store has to workers itself.
func addRelay(ctx context.Context, own *vllm.Config, cfg config.Config, p *process, parts *closers) error {
	names, keys, err := relayNames(cfg, p.env)
	if err != nil {
		return err
	}
	own.Keys = keys
	own.Relay, err = openRelay(ctx, cfg, names, p, parts)
	return err
}

// besideHealth serves /health, where vLLM's proxy says more than other roles do and asks for no key, beside all else.
func besideHealth(f *vllm.Front, out *exit, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if out.leaving.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		f.ServeHealth(w, r)
	})
	mux.Handle("/", rest)
	return mux
}

// vllmConfig is the configuration of the front. Three of vLLM's own variables are read.
func vllmConfig(cfg config.Config, env func(string) string) (vllm.Config, error) {
	v, g := cfg.VLLM, cfg.Gateway
	out := vllm.Config{
		Dynamic: v.DynamicRegistration, AdminKey: env("ADMIN_API_KEY"), Routing: vllm.Routing(g.Routing),
		NoRewrite: v.NoRewrite, DecodeRetries: v.DecodeRetries, Failovers: g.Repairs, ShortNames: v.ShortNames,
		Registry:      vllm.RegistryConfig{FailThreshold: v.FailThreshold, EvictedTTL: time.Duration(v.EvictedTTL)},
		ProbeInterval: time.Duration(v.ProbeInterval), ProbeTimeout: time.Duration(v.ProbeTimeout),
		Body:     proxy.BodyLimits{MaxBytes: int64(g.MaxBodyBytes)},
		MaxMedia: maxVLLMMedia, MaxFetchBytes: int64(g.MaxBodyBytes), WriteTimeout: writeTimeout, LogRequests: g.LogRequests,
		Private: g.KeysFile != "" || len(g.APIKeys) > 0,
	}
	if v.DynamicRegistration && out.AdminKey == "" {
		return out, errors.New("vllm.dynamic_registration needs a key: set the environment variable ADMIN_API_KEY, which instances send as X-API-Key")
	}
	var err error
	if out.MaxBatch, err = whole(env, "ENCODER_MAX_BATCH_SIZE", 0); err != nil {
		return out, err
	}
	seconds, err := number(env, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 5)
	if err != nil {
		return out, err
	}
	out.KeepAlive = time.Duration(seconds * float64(time.Second))
	if !v.DynamicRegistration {
		out.Static = staticInstances(v)
	}
	out.Token, err = gatewayToken(cfg.Fleet)
	return out, err
}

// maxVLLMMedia bounds the media parts of one request. How many a model takes, its workers say.
const maxVLLMMedia = 1024

// staticInstances lists the workers of a fleet that does not change.
func staticInstances(v config.VLLM) []vllm.Instance {
	var out []vllm.Instance
	add := func(role vllm.Role, urls []string) {
		for _, u := range urls {
			out = append(out, vllm.Instance{Role: role, URL: strings.TrimRight(strings.TrimSpace(u), "/"), Replicas: 1})
		}
	}
	decode := vllm.PrefillDecode
	if len(v.Prefills()) > 0 {
		decode = vllm.Decode
	}
	add(vllm.Encode, v.EncodeServersURLs)
	add(vllm.Prefill, v.Prefills())
	at := len(out)
	add(decode, v.DecodeServersURLs)
	for i := range out[at:] {
		out[at+i].Replicas = v.ECConsumerDPSize
		if n := v.ECConsumerDPSize; len(v.ECConsumerZMQAddrs) > 0 {
			out[at+i].Addresses = v.ECConsumerZMQAddrs[i*n : (i+1)*n]
		}
	}
	return out
}

// whole reads a variable as a whole number that is not negative.
func whole(env func(string) string, name string, otherwise int) (int, error) {
	x, err := number(env, name, float64(otherwise))
	if err == nil && (x < 0 || x != float64(int(x))) {
		err = fmt.Errorf("environment variable %s must be a whole number and non-negative, got %q", name, env(name))
	}
	return int(x), err
}

// number reads a variable as a number.
func number(env func(string) string, name string, otherwise float64) (float64, error) {
	text := strings.TrimSpace(env(name))
	if text == "" {
		return otherwise, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != x || x > 1e9 || x < -1e9 {
		return 0, fmt.Errorf("environment variable %s = %q is no number", name, text)
	}
	return x, nil
}
