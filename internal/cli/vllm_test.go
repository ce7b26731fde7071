// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/vllm"
)

// TestStaticInstances: addresses go to the consumers in the order that vLLM's proxy has: s0r0, s0r1, s1r0, s1r1.
func TestStaticInstances(t *testing.T) {
	got := staticInstances(config.VLLM{
		EncodeServersURLs: []string{"http://e1:1/", " http://e2:1"}, DecodeServersURLs: []string{"http://d1:1", "http://d2:1"},
		PrefillServersURLs: []string{"none"}, ECConsumerDPSize: 2, ECConsumerZMQAddrs: []string{"a", "b", "c", "d"},
	})
	want := []vllm.Instance{
		{Role: vllm.Encode, URL: "http://e1:1", Replicas: 1},
		{Role: vllm.Encode, URL: "http://e2:1", Replicas: 1},
		{Role: vllm.PrefillDecode, URL: "http://d1:1", Replicas: 2, Addresses: []string{"a", "b"}},
		{Role: vllm.PrefillDecode, URL: "http://d2:1", Replicas: 2, Addresses: []string{"c", "d"}},
	}
	same := func(a, b vllm.Instance) bool {
		return a.Role == b.Role && a.URL == b.URL && a.Replicas == b.Replicas && slices.Equal(a.Addresses, b.Addresses)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	split := staticInstances(config.VLLM{EncodeServersURLs: []string{"e"}, PrefillServersURLs: []string{"p"}, DecodeServersURLs: []string{"d"}, ECConsumerDPSize: 1})
	var roles []string
	for _, i := range split {
		roles = append(roles, string(i.Role))
	}
	if s := strings.Join(roles, " "); s != "encode prefill decode" {
		t.Errorf("got %s", s)
	}
}

// TestVLLMConfig: what vLLM's proxy reads from the environment.
func TestVLLMConfig(t *testing.T) {
	f := func(dynamic bool, env map[string]string, wants ...string) vllm.Config {
		t.Helper()
		cfg := config.DefaultConfig()
		cfg.VLLM.DynamicRegistration = dynamic
		got, err := vllmConfig(cfg, func(name string) string { return env[name] })
		if (err != nil) != (len(wants) > 0) {
			t.Errorf("%v: %v", env, err)
		}
		for _, w := range wants {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %v lacks %q", env, err, w)
			}
		}
		return got
	}
	if got := f(false, nil); got.KeepAlive != 5*time.Second || got.MaxBatch != 0 || got.DecodeRetries != 1 {
		t.Errorf("defaults are %+v", got)
	}
	if got := f(true, map[string]string{"ADMIN_API_KEY": "k", "ENCODER_MAX_BATCH_SIZE": "2", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "0.1"}); got.KeepAlive != 100*time.Millisecond || got.MaxBatch != 2 || got.AdminKey != "k" {
		t.Errorf("got %+v", got)
	}
	f(true, nil, "ADMIN_API_KEY")
	f(false, map[string]string{"ENCODER_MAX_BATCH_SIZE": "-1"}, "ENCODER_MAX_BATCH_SIZE", "non-negative")
	f(false, map[string]string{"ENCODER_MAX_BATCH_SIZE": "1.5"}, "whole number")
	f(false, map[string]string{"ENCODER_MAX_BATCH_SIZE": "x"}, "no number")
	f(false, map[string]string{"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "soon"}, "no number")
}
