// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"time"

	"afterimage/internal/engine/device"
	"afterimage/internal/engine/llama"
)

// Limits that keep a slip of the finger from looking like a fault of the program.
const (
	maxThreads  = 512
	maxSlots    = 1024
	maxEncoders = 64
	maxContext  = 1 << 22
	maxLayers   = 1 << 16

	maxImagePixels = 1 << 30

	maxBusyPoll = Duration(time.Millisecond)
)

// shared checks the tables that several roles read.
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
