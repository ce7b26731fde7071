// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"afterimage/internal/embedding"
)

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
	c.dataAddress("prefill.data_listen", p.DataListen, "Encoders")
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

func (c *checker) decode() {
	if !c.is(RoleDecode, RoleUp) {
		return
	}
	d := &c.l.Config.Decode
	c.address("decode.listen", d.Listen)
	c.dataAddress("decode.data_listen", d.DataListen, "prefill workers")
	c.memory("decode.arena_bytes", d.ArenaBytes)
	if d.Name == "" {
		c.fault("decode.name", "missing; give a name that no other worker has")
	}
}
