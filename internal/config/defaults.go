// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/engine/llama"
	"afterimage/internal/quick"
)

// The kinds that engine.kind and store.kind take.
const (
	EngineLlama   = "llama"
	EngineDevice  = "device"
	StoreRAM      = "ram"
	StoreMooncake = "mooncake"
	StoreNone     = "none"
)

// The formats that encoder.protocol takes.
const (
	ProtocolA1 = string(embedding.A1)
	ProtocolV3 = string(embedding.V3)
)

// The modes that delivery.mode takes.
const (
	DeliveryDirect = "direct"
	DeliveryP2P    = "p2p"
)

// DefaultConfig returns the values that hold where nothing else is said.
func DefaultConfig() Config {
	return Config{
		Engine: Engine{Kind: EngineLlama, GPU: string(llama.GPUAuto), GPULayers: -1, Threads: 1, Slots: 2},
		Store:  Store{Kind: StoreRAM, Listen: "127.0.0.1:8300", Path: "/tmp/afterimage-store.sock", Bytes: GiB},
		Mooncake: Mooncake{
			Client: "127.0.0.1:50052", StartClient: true, ListEvery: Duration(5 * time.Second), ReadConnections: 2, WriteConnections: 1,
			CallTimeout: Duration(15 * time.Second), RegisterTimeout: Duration(45 * time.Second),
			ClientTTL: Duration(30 * time.Second), GiveUpTimeout: Duration(2 * time.Minute),
		},
		Encoder: Encoder{
			Listen: "127.0.0.1:8100", Name: "encoder-0", ArenaBytes: GiB, CacheBytes: 256 * MiB,
			CrossEncoderCache: true, Protocol: ProtocolA1, VLLMEncoder: embedding.VLLMDefaultEncoder, VLLMDType: "bfloat16", VLLMHash: "blake3",
			StoreMaxPendingItems: 32, StoreMaxPendingBytes: 2 * GiB,
			StoreReadBufferBytes: 128 * MiB, OnUnconfirmed: "drain", Admission: "always",
			TensorParallelSize: 1, PipelineParallelSize: 1, DataParallelSize: 1,
			Modalities: []string{"image"}, MMProcessorCacheGB: 4,
		},
		Prefill: Prefill{
			Listen: "127.0.0.1:8200", DataListen: "127.0.0.1:8201", Name: "prefill-0", ArenaBytes: GiB, ResidentBytes: 256 * MiB,
			PrepareTimeout: Duration(30 * time.Second), ItemTimeout: Duration(30 * time.Second), StepTokens: 128,
		},
		Decode: Decode{Listen: "127.0.0.1:8400", DataListen: "127.0.0.1:8401", Name: "decode-0", ArenaBytes: 256 * MiB},
		Gateway: Gateway{
			Listen: "127.0.0.1:8000", MaxBodyBytes: 64 * MiB, MaxImages: 16,
			FetchTimeout: Duration(10 * time.Second), FetchBudget: GiB, RevisitEntries: 16384, RevisitBytes: 64 * MiB, DrainNotice: Duration(5 * time.Second), Repairs: 2, Routing: "affinity", Dashboard: true, SilenceLimit: Duration(10 * time.Second),
			OpenMetrics: true, MaxTextRequests: 16384, MaxImageRequests: 16384, MaxQueued: 256, MaxQueuedBytes: GiB, MaxWait: Duration(30 * time.Second),
		},
		VLLM: VLLM{
			ECConsumerDPSize: 1, DecodeRetries: 1, ProbeInterval: Seconds(5 * time.Second), ProbeTimeout: Seconds(2 * time.Second),
			FailThreshold: 3, EvictedTTL: Seconds(900 * time.Second), Fetch: "gateway", ShortNames: true,
		},
		Relay:     Relay{Encoder: embedding.VLLMDefaultEncoder, DType: "bfloat16", MemoryBytes: 512 * MiB},
		Delivery:  Delivery{Mode: DeliveryDirect, Overlap: true},
		Transport: Transport{Loans: true},
		Media:     Media{MaxImageBytes: 20 * MiB, MaxImagePixels: 50_000_000},
		Up:        Up{Encoders: 2, StartTimeout: Duration(2 * time.Minute)},
		Server:    Server{BusyPoll: Duration(quick.DefaultBudget), Drain: Duration(30 * time.Second)},
		Log:       Log{Level: "info", Format: "text"},
	}
}
