// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/engine/device"
	"afterimage/internal/engine/llama"
	"afterimage/internal/media"
)

// Limits that keep a slip of the finger from looking like a fault of the program.
const (
	maxThreads  = 512
	maxSlots    = 1024
	maxEncoders = 64
	maxContext  = 1 << 22
	maxLayers   = 1 << 16

	maxImagePixels = 1 << 30

	minMooncakeBytes = 16 * MiB

	maxBusyPoll = Duration(time.Millisecond)
)

func (c *checker) shared() {
	cfg := &c.l.Config
	c.oneOf("log.level", cfg.Log.Level, "debug", "info", "warn", "error")
	c.oneOf("log.format", cfg.Log.Format, "text", "json")
	if at := cfg.Tracing.Endpoint; at != "" {
		c.receiver("tracing.otlp_endpoint", at)
	}
	c.duration("server.busy_poll", cfg.Server.BusyPoll, 0)
	if cfg.Server.BusyPoll > maxBusyPoll {
		c.fault("server.busy_poll", "too long; give at most %v: whoever waits longer had better sleep", maxBusyPoll)
	}
	c.duration("server.drain", cfg.Server.Drain, 0)
	if c.is(RoleUp) {
		c.atLeast("up.encoders", int64(cfg.Up.Encoders), 1, "")
		c.atMost("up.encoders", int64(cfg.Up.Encoders), maxEncoders, "each is a process with memory of its own")
		c.atLeast("up.decodes", int64(cfg.Up.Decodes), 0, "")
		c.atMost("up.decodes", int64(cfg.Up.Decodes), maxEncoders, "each is a process with memory of its own")
		c.duration("up.start_timeout", cfg.Up.StartTimeout, time.Second)
	}
	if c.is(RoleUp, RoleEncoder, RolePrefill, RoleDecode) {
		c.transport(&cfg.Transport)
	}
	if c.is(RoleUp, RoleEncoder, RolePrefill, RoleDecode, RoleGateway) {
		c.fleet(&cfg.Fleet)
	}
	if c.is(RoleUp, RolePrefill) {
		c.oneOf("delivery.mode", cfg.Delivery.Mode, DeliveryDirect, DeliveryP2P)
	}
	if c.is(RoleUp, RoleEncoder, RoleGateway) {
		c.bytes("media.max_image_bytes", cfg.Media.MaxImageBytes, KiB)
		c.atLeast("media.max_image_pixels", int64(cfg.Media.MaxImagePixels), 1, "")
		c.atMost("media.max_image_pixels", int64(cfg.Media.MaxImagePixels), maxImagePixels, "no decoder here takes more")
	}
	if c.is(RoleUp, RoleEncoder, RolePrefill, RoleDecode) {
		c.engine(&cfg.Engine)
		c.model(&cfg.Model)
	}
}

// transport checks that TLS is either whole or not there: half of it would look encrypted and not be.
func (c *checker) transport(t *Transport) {
	files := []struct{ key, path, what string }{
		{"transport.tls_cert", t.TLSCert, "a certificate in PEM"},
		{"transport.tls_key", t.TLSKey, "its private key in PEM"},
		{"transport.tls_ca", t.TLSCA, "the authorities' certificates in PEM"},
	}
	on := t.TLSCert != "" || t.TLSKey != "" || t.TLSCA != ""
	for _, f := range files {
		switch {
		case f.path != "":
			c.file(f.key, f.path, f.what)
		case on:
			c.fault(f.key, "missing, while other files of TLS are named; name %s, or none of them", f.what)
		}
	}
	if t.TLSName != "" && !on {
		c.fault("transport.tls_name", "there is no TLS that it would be checked with; set transport.tls_cert, tls_key and tls_ca, or leave it empty")
	}
}

func (c *checker) engine(e *Engine) {
	c.oneOf("engine.kind", e.Kind, EngineLlama, EngineDevice)
	if _, err := device.ParseProfile(e.Device); err != nil {
		c.fault("engine.device", "%v", err)
	}
	c.oneOf("engine.gpu", e.GPU, llama.GPUs()...)
	if e.Kind == EngineDevice && e.GPU == string(llama.GPUVulkan) {
		c.fault("engine.gpu", "engine.kind is %s, which computes on nothing; set that to %s, or leave this at %s", EngineDevice, EngineLlama, llama.GPUAuto)
	}
	if e.Dir != "" && e.Kind == EngineLlama {
		c.folder("engine.dir", e.Dir, "the folder of the native libraries, or leave it empty for those of 'make deps'")
	}
	c.atLeast("engine.gpu_layers", int64(e.GPULayers), -1, " (-1 is all)")
	c.atMost("engine.gpu_layers", int64(e.GPULayers), maxLayers, "no model has more layers")
	c.atLeast("engine.threads", int64(e.Threads), 1, "")
	c.atMost("engine.threads", int64(e.Threads), maxThreads, "more than any host has cores")
	c.atLeast("engine.slots", int64(e.Slots), 1, "")
	c.atMost("engine.slots", int64(e.Slots), maxSlots, "each holds the memory of a whole context")
	c.atLeast("engine.context", int64(e.Context), 0, " (0 takes what suits the model)")
	c.atMost("engine.context", int64(e.Context), maxContext, "no model has more positions")
}

func (c *checker) model(m *Model) {
	if m.Path != "" {
		c.file("model.path", m.Path, "a text model in GGUF")
	}
	if m.MMProj != "" {
		c.file("model.mmproj", m.MMProj, "the projector in GGUF that belongs to the text model")
	}
	if t := m.ChatTemplate; strings.ContainsAny(t, "/.") && c.is(RoleUp, RolePrefill) {
		c.file("model.chat_template", t, "a template in Jinja, or a name that llama.cpp knows")
	}
	switch needsProjector := c.is(RoleUp, RoleEncoder) && c.l.Engine.Kind == EngineLlama; {
	case m.Path == "" && m.MMProj != "":
		c.fault("model.path", "missing, while model.mmproj is %q; name the text model that it belongs to, or neither for the demo model", m.MMProj)
	case m.Path != "" && m.MMProj == "" && needsProjector:
		c.fault("model.mmproj", "missing; name the projector that belongs to %s", m.Path)
	}
}

func (c *checker) store() {
	s := &c.l.Config.Store
	if c.is(RoleStore, RoleUp, RoleEncoder, RolePrefill) {
		c.oneOf("store.kind", s.Kind, StoreRAM, StoreMooncake, StoreNone)
	}
	c.retention(s)
	if !c.is(RoleStore, RoleUp) {
		return
	}
	switch {
	case c.role == RoleStore && s.Kind == StoreNone:
		c.fault("store.kind", "the Store is turned off; set it to %s to run one", StoreRAM)
	case c.role == RoleStore && s.Kind == StoreMooncake:
		c.fault("store.kind", "the Store is a Mooncake cluster, which mooncake_master and mooncake_client run; set it to %s to run a Store here", StoreRAM)
	}
	if c.role == RoleUp && s.Kind == StoreMooncake && s.Bytes < minMooncakeBytes {
		c.fault("store.bytes", "too small; give at least %v, with less mooncake_client does not start", minMooncakeBytes)
	}
	c.address("store.listen", s.Listen)
	c.memory("store.bytes", s.Bytes)
	// Linux takes 108 bytes for the path of a socket, one of them the end.
	if len(s.Path) > 107 {
		c.fault("store.path", "too long for a socket; give a path of at most 107 bytes")
	}
	if s.Path == "" {
		c.fault("store.path", "missing; give the path of a socket to make")
	}
}

// maxConnections is more than any mooncake_client has threads to serve.
const maxConnections = 64

// mooncake checks the way to a cluster where one is used.
func (c *checker) mooncake() {
	if m := &c.l.Config.Mooncake; c.is(RoleUp, RoleGateway) && m.Admin != "" {
		c.called("mooncake.admin", m.Admin, "of the master's HTTP server, e.g. 10.0.0.5:9003")
		c.duration("mooncake.list_every", m.ListEvery, 100*time.Millisecond)
	}
	if !c.is(RoleUp, RoleEncoder, RolePrefill) || c.l.Config.Store.Kind != StoreMooncake {
		return
	}
	c.cluster()
}

// cluster checks how a mooncake_client is called.
func (c *checker) cluster() {
	m := &c.l.Config.Mooncake
	c.called("mooncake.client", m.Client, "of this host's mooncake_client, e.g. 127.0.0.1:50052")
	c.atLeast("mooncake.read_connections", int64(m.ReadConnections), 1, "")
	c.atMost("mooncake.read_connections", int64(m.ReadConnections), maxConnections, "each takes a thread of mooncake_client")
	c.atLeast("mooncake.write_connections", int64(m.WriteConnections), 1, "")
	c.atMost("mooncake.write_connections", int64(m.WriteConnections), maxConnections, "each takes a thread of mooncake_client")
	c.duration("mooncake.call_timeout", m.CallTimeout, time.Second)
	c.duration("mooncake.register_timeout", m.RegisterTimeout, time.Second)
	c.duration("mooncake.client_ttl", m.ClientTTL, time.Second)
	c.duration("mooncake.give_up_timeout", m.GiveUpTimeout, time.Second)
}

// called checks host:port of another process, whose says which.
func (c *checker) called(key, value, whose string) {
	host, port, err := net.SplitHostPort(value)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		c.fault(key, "no address to call; write HOST:PORT %s", whose)
	}
}

// retention checks how long and for whom the Store keeps objects. Limits that nobody would keep are refused.
func (c *checker) retention(s *Store) {
	if c.is(RoleUp, RoleEncoder) && s.TTL != 0 {
		c.duration("store.ttl", s.TTL, time.Second)
		if s.Kind == StoreMooncake {
			c.fault("store.ttl", "a Mooncake cluster keeps objects until it needs the room; leave it at 0s, or set store.kind to %s", StoreRAM)
		}
	}
	if c.is(RoleUp) && s.TenantQuotaBytes != 0 && s.Kind == StoreMooncake {
		c.fault("store.tenant_quota_bytes", "tenants of a Mooncake cluster are set up at its master; leave it at 0, or set store.kind to %s", StoreRAM)
	}
	if c.is(RoleUp, RoleStore) && s.Kind == StoreRAM && s.TenantQuotaBytes > s.Bytes {
		c.fault("store.tenant_quota_bytes", "more than store.bytes (%v), which all tenants share; lower it, or leave it at 0 for no limit", s.Bytes)
	}
}

func (c *checker) encoder() {
	if !c.is(RoleEncoder, RoleUp) {
		return
	}
	e := &c.l.Config.Encoder
	c.address("encoder.listen", e.Listen)
	c.memory("encoder.arena_bytes", e.ArenaBytes)
	c.bytes("encoder.cache_bytes", e.CacheBytes, 0)
	if e.CacheBytes > e.ArenaBytes && e.ArenaBytes >= MiB {
		c.fault("encoder.cache_bytes", "larger than encoder.arena_bytes, of which it is a part (%v); lower it or raise the other", e.ArenaBytes)
	}
	if e.Name == "" {
		c.fault("encoder.name", "missing; give a name that no other worker has")
	}
	c.atLeast("encoder.store_max_pending_items", int64(e.StoreMaxPendingItems), 1, "")
	c.bytes("encoder.store_max_pending_bytes", e.StoreMaxPendingBytes, 1)
	c.bytes("encoder.store_read_buffer_bytes", e.StoreReadBufferBytes, 1)
	c.oneOf("encoder.on_unconfirmed", e.OnUnconfirmed, "drain", "exit")
	c.oneOf("encoder.admission", e.Admission, "always", "second-sighting")
	c.producer(e)
	c.oneOf("encoder.protocol", e.Protocol, ProtocolA1, ProtocolV3)
	if e.Protocol == ProtocolV3 {
		c.interchange(e)
	}
}

// interchange checks what an Encoder needs that shares a Store with vLLM.
func (c *checker) interchange(e *Encoder) {
	switch cfg := &c.l.Config; {
	case !e.CrossEncoderCache:
		c.fault("encoder.protocol", "the format of objects in a Store, while encoder.cross_encoder_cache is off; turn that on, or leave this at %s", ProtocolA1)
	case cfg.Store.Kind != StoreMooncake:
		c.fault("encoder.protocol", "vLLM shares embeddings through Mooncake alone; set store.kind to %s, or leave this at %s", StoreMooncake, ProtocolA1)
	case cfg.Engine.Kind == EngineDevice:
		c.fault("encoder.protocol", "engine.kind is %s, whose numbers are made up, and vLLM would take them for real ones; leave this at %s", EngineDevice, ProtocolA1)
	}
	if e.VLLMModel == "" {
		c.fault("encoder.vllm_model", "missing; give the model path or name exactly as vLLM is given it: names of pictures depend on it")
	}
	if e.VLLMEncoder == "" {
		c.fault("encoder.vllm_encoder", "missing; give the text between @encoder: and @dtype: of vLLM's keys, %s if vLLM sets nothing for its multimodal encoder", embedding.VLLMDefaultEncoder)
	}
	if _, err := embedding.ParseDType(e.VLLMDType); err != nil {
		c.fault("encoder.vllm_dtype", "unknown; use bfloat16, float16 or float32, as vLLM has it")
	}
	c.oneOf("encoder.vllm_hash", e.VLLMHash, "blake3", "sha256", "sha512")
}

// producer refuses what an Encoder that shares its work cannot do, in the words of vLLM, which people
// will search for.
func (c *checker) producer(e *Encoder) {
	if e.TensorParallelSize != 1 {
		c.fault("encoder.tensor_parallel_size", "ECMooncakeConnector producers require tensor_parallel_size=1.")
	}
	if e.PipelineParallelSize != 1 {
		c.fault("encoder.pipeline_parallel_size", "ECMooncakeConnector producers do not support pipeline parallelism.")
	}
	if e.DataParallelSize != 1 {
		c.fault("encoder.data_parallel_size", "ECMooncakeConnector producers require data_parallel_size=1.")
	}
	if !e.CrossEncoderCache {
		return
	}
	if e.EnableLoRA {
		c.fault("encoder.enable_lora", "cross_encoder_cache does not support LoRA")
	}
	if !slices.Equal(e.Modalities, []string{"image"}) {
		c.fault("encoder.modalities", "cross_encoder_cache supports only modality image")
	}
	if !(e.MMProcessorCacheGB > 0) { // NaN is no size either
		c.fault("encoder.mm_processor_cache_gb", "cross_encoder_cache requires mm_processor_cache_gb > 0 to preserve content identifiers across Encoders and restarts")
	}
}

func (c *checker) prefill() {
	if !c.is(RolePrefill, RoleUp) {
		return
	}
	p := &c.l.Config.Prefill
	c.address("prefill.listen", p.Listen)
	c.address("prefill.data_listen", p.DataListen)
	if host, _, err := net.SplitHostPort(p.DataListen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		c.fault("prefill.data_listen", "no address to send to; name one of this host's that Encoders can reach")
	}
	c.memory("prefill.arena_bytes", p.ArenaBytes)
	c.bytes("prefill.resident_bytes", p.ResidentBytes, 0)
	if p.HandoffBytes != 0 {
		c.memory("prefill.handoff_bytes", p.HandoffBytes)
	}
	c.duration("prefill.prepare_timeout", p.PrepareTimeout, time.Second)
	c.duration("prefill.item_timeout", p.ItemTimeout, time.Second)
	c.atLeast("prefill.step_tokens", int64(p.StepTokens), 2, "")
	c.atMost("prefill.step_tokens", int64(p.StepTokens), maxContext, "no model has more positions")
	if p.Name == "" {
		c.fault("prefill.name", "missing; give a name that no other worker has")
	}
}

// fetching checks what may be fetched.
func (c *checker) fetching(g *Gateway) {
	c.duration("gateway.fetch_timeout", g.FetchTimeout, 10*time.Millisecond)
	c.atLeast("gateway.fetch_revisit_entries", int64(g.RevisitEntries), 0, "")
	c.bytes("gateway.fetch_revisit_bytes", g.RevisitBytes, 0)
	c.bytes("gateway.fetch_budget_bytes", g.FetchBudget, c.l.Config.Media.MaxImageBytes)
	for key, list := range map[string][]string{"gateway.fetch_allow": g.FetchAllow, "gateway.fetch_deny": g.FetchDeny} {
		if _, err := media.ParseHosts(list); err != nil {
			c.fault(key, "%v", err)
		}
	}
	for _, port := range g.FetchPorts {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			c.fault("gateway.fetch_ports", "%q is no port; give numbers from 1 to 65535", port)
		}
	}
}

func (c *checker) decode() {
	if !c.is(RoleDecode, RoleUp) {
		return
	}
	d := &c.l.Config.Decode
	c.address("decode.listen", d.Listen)
	c.address("decode.data_listen", d.DataListen)
	if host, _, err := net.SplitHostPort(d.DataListen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		c.fault("decode.data_listen", "no address to send to; name one of this host's that prefill workers can reach")
	}
	c.memory("decode.arena_bytes", d.ArenaBytes)
	if d.Name == "" {
		c.fault("decode.name", "missing; give a name that no other worker has")
	}
}

func (c *checker) gateway() {
	if !c.is(RoleGateway, RoleUp) {
		return
	}
	g := &c.l.Config.Gateway
	c.address("gateway.listen", g.Listen)
	c.urls("gateway.encoders", g.Encoders)
	c.urls("gateway.prefills", g.Prefills)
	c.urls("gateway.decodes", g.Decodes)
	c.oneOf("gateway.routing", g.Routing, "affinity", "round-robin", "random")
	c.vllm()
	if c.role == RoleGateway && len(g.Prefills) == 0 && !c.l.Config.VLLM.Fronts() {
		c.fault("gateway.prefills", "missing; name at least one worker, e.g. http://127.0.0.1:8200, or run 'afterimage up'")
	}
	if c.role == RoleUp && len(g.Encoders)+len(g.Prefills)+len(g.Decodes) > 0 {
		c.fault("gateway.encoders", "up starts workers of its own; leave gateway.encoders, gateway.prefills and gateway.decodes empty, or run 'afterimage gateway'")
	}
	c.bytes("gateway.max_body_bytes", g.MaxBodyBytes, KiB)
	c.atLeast("gateway.max_images", int64(g.MaxImages), 0, "")
	c.fetching(g)
	c.duration("gateway.drain_notice", g.DrainNotice, 0)
	c.atLeast("gateway.repairs", int64(g.Repairs), 0, "")
	c.duration("gateway.silence_limit", g.SilenceLimit, time.Second)
	c.keys(g)
	c.atLeast("gateway.max_text_requests", int64(g.MaxTextRequests), 0, "")
	c.atLeast("gateway.max_image_requests", int64(g.MaxImageRequests), 0, "")
	c.atLeast("gateway.max_queued", int64(g.MaxQueued), 0, "")
	if g.MaxQueuedBytes != 0 && g.MaxQueuedBytes < g.MaxBodyBytes {
		c.fault("gateway.max_queued_bytes", "smaller than gateway.max_body_bytes, so that the largest requests could never wait; give at least %v, or 0 for no limit", g.MaxBodyBytes)
	}
	c.duration("gateway.max_wait", g.MaxWait, time.Millisecond)
}
