// SPDX-License-Identifier: Apache-2.0

package config

// Config is the configuration of every role. A role reads its own table and the shared ones.
type Config struct {
	Model     Model     `toml:"model"`
	Engine    Engine    `toml:"engine"`
	Store     Store     `toml:"store"`
	Mooncake  Mooncake  `toml:"mooncake"`
	Encoder   Encoder   `toml:"encoder"`
	Prefill   Prefill   `toml:"prefill"`
	Decode    Decode    `toml:"decode"`
	Gateway   Gateway   `toml:"gateway"`
	Delivery  Delivery  `toml:"delivery"`
	Transport Transport `toml:"transport"`
	Fleet     Fleet     `toml:"fleet"`
	VLLM      VLLM      `toml:"vllm"`
	Relay     Relay     `toml:"relay"`
	Media     Media     `toml:"media"`
	Up        Up        `toml:"up"`
	Server    Server    `toml:"server"`
	Log       Log       `toml:"log"`
	Tracing   Tracing   `toml:"tracing"`
}

// Model names the pair of model files.
type Model struct {
	Path     string `toml:"path" key:"model.path" name:"model" placeholder:"FILE" help:"Text model in GGUF. With none named, the built-in demo model is used: it knows colours, not objects."`
	MMProj   string `toml:"mmproj" key:"model.mmproj" name:"mmproj" placeholder:"FILE" help:"Vision projector in GGUF that belongs to the text model. Only Encoders read it."`
	Name     string `toml:"name" key:"model.name" name:"model-name" placeholder:"NAME" help:"Name that clients ask for and /v1/models shows. Empty takes the name in the model file."`
	Revision string `toml:"revision" key:"model.revision" name:"model-revision" placeholder:"TEXT" help:"Part of every Store key. Change it when weights change behind one name."`

	ChatTemplate string `toml:"chat_template" key:"model.chat_template" name:"chat-template" placeholder:"NAME|FILE" help:"Chat template to use instead of the model's own: one of llama.cpp's by name (chatml, llama3, ...) or a file in Jinja. Only P/Ds read it."`
}

// Engine says how models run.
type Engine struct {
	Kind string `toml:"kind" key:"engine.kind" name:"engine" placeholder:"KIND" help:"llama runs the model with llama.cpp; device is a modelled accelerator that needs no model files."`
	Dir  string `toml:"dir" key:"engine.dir" name:"engine-dir" placeholder:"DIR" help:"Folder of the native libraries, or of a build of your own (CUDA, ROCm) of the same version of llama.cpp. Empty looks where 'make deps' puts them."`
	GPU  string `toml:"gpu" key:"engine.gpu" placeholder:"WHICH" help:"auto uses a GPU if a back end in the folder of the native libraries finds one; vulkan insists on the first device of Vulkan, be it a driver in software; off leaves all to the CPU. Workers of a fleet must all use the same kind of device."`

	GPULayers int `toml:"gpu_layers" key:"engine.gpu_layers" placeholder:"N" help:"Layers of the text model on the GPU, the rest is computed on the CPU. -1 is all; lower it where the memory of the GPU is too small."`

	Threads int    `toml:"threads" key:"engine.threads" placeholder:"N" help:"Threads per role. More makes one request faster while other roles of this host wait."`
	Slots   int    `toml:"slots" key:"engine.slots" placeholder:"N" help:"Requests that decode side by side. Each holds the memory of a whole context."`
	Device  string `toml:"device" key:"engine.device" placeholder:"TEXT" help:"What the modelled accelerator is like, with engine.kind = device: encode=50ms,decode=10ms and so on. docs/proof.md lists the names; those left out have the values of the published experiment."`
	Context int    `toml:"context" key:"engine.context" placeholder:"N" help:"Positions of one conversation, images included. 0 takes 4096, or less if the model was trained on less."`
}

// Store says where the shared Store is and how large.
type Store struct {
	Kind   string `toml:"kind" key:"store.kind" placeholder:"KIND" help:"ram shares embeddings between the Encoders of this host, mooncake between hosts through a Mooncake cluster; none turns the Store off. Encoders and prefill workers read it too."`
	Listen string `toml:"listen" key:"store.listen" placeholder:"HOST:PORT" help:"Address of health and metrics."`
	Path   string `toml:"path" key:"store.path" placeholder:"SOCKET" help:"Unix socket that Encoders connect to."`
	Bytes  Bytes  `toml:"bytes" key:"store.bytes" placeholder:"SIZE" help:"Memory for embeddings. When it is full, those not used for longest go. With mooncake it is what up gives to the cluster, 256MiB if not set."`

	TTL              Duration `toml:"ttl" key:"store.ttl" placeholder:"TIME" help:"How long an embedding stays in the Store at most, counted from when an Encoder published it. 0s keeps it until room is needed. Encoders read it."`
	TenantQuotaBytes Bytes    `toml:"tenant_quota_bytes" key:"store.tenant_quota_bytes" placeholder:"SIZE" help:"Most that the embeddings of one tenant take up; one more pushes out that tenant's oldest. 0 is no limit. Embeddings that belong to no tenant count for none."`
}

// Mooncake configures how workers of this host reach a Mooncake cluster, with store.kind = mooncake.
type Mooncake struct {
	Client      string `toml:"client" key:"mooncake.client" placeholder:"HOST:PORT" help:"Where this host's mooncake_client takes calls. Memory is handed to it through a unix socket, so it must be on the host and in the network namespace of the worker."`
	Admin       string `toml:"admin" key:"mooncake.admin" placeholder:"HOST:PORT" help:"Where mooncake_master answers HTTP (its --metrics_host and --metrics_port). The commands of 'afterimage store' list objects and sum up there. Empty: port 9003 of the master that MOONCAKE_CONFIG_PATH names. Gateways for which it is set learn there what the cluster stores, and share images that it has among Encoders by load. With relay.enabled and no relay.model they read there under which names vLLM's Encoders store."`
	StartClient bool   `toml:"start_client" key:"mooncake.start_client" negatable:"" help:"Where nothing answers there, run a mooncake_client with the settings of the file that MOONCAKE_CONFIG_PATH names, and stop it with this worker. Without, a worker that finds none at its start refuses and prints the command."`
	Dir         string `toml:"dir" key:"mooncake.dir" placeholder:"DIR" help:"Folder of the programs mooncake_client and mooncake_master. Empty looks where 'make deps-mooncake' puts them."`

	ListEvery Duration `toml:"list_every" key:"mooncake.list_every" placeholder:"TIME" help:"How often gateways ask the master what the cluster stores. The answer is a list of all names, some 160 bytes each; the master took 80ms for 20,000."`

	ReadConnections  int `toml:"read_connections" key:"mooncake.read_connections" placeholder:"N" help:"Connections for questions and reads. mooncake_client serves each with one thread, so that those of all kinds and one for heartbeats should be no more than its --threads."`
	WriteConnections int `toml:"write_connections" key:"mooncake.write_connections" placeholder:"N" help:"Connections for publications and removals, which hold up whatever shares their connection, and for reads of up to 2MiB while none of those runs."`

	CallTimeout     Duration `toml:"call_timeout" key:"mooncake.call_timeout" placeholder:"TIME" help:"Longest wait for one call. It has to be longer than mooncake_client takes to give up a storage node that stands still (MC_TCP_PROGRESS_TIMEOUT_SEC), or memory goes into quarantine for nothing."`
	RegisterTimeout Duration `toml:"register_timeout" key:"mooncake.register_timeout" placeholder:"TIME" help:"Longest wait for mooncake_client to take the arena, which it does between transfers: a storage node that stands still delays it by up to 30s."`
	ClientTTL       Duration `toml:"client_ttl" key:"mooncake.client_ttl" placeholder:"TIME" help:"What the master has as --client_ttl. For so long a dead storage node still seems to have its objects, and a key that failed is neither read nor published."`
	GiveUpTimeout   Duration `toml:"give_up_timeout" key:"mooncake.give_up_timeout" placeholder:"TIME" help:"How long more than a quarter of the arena may stay in doubt before the worker gives its Store up and has itself restarted. mooncake_client takes up to 60s to give a transfer up."`
}

// Encoder configures the role that turns images into embeddings.
type Encoder struct {
	Listen string `toml:"listen" key:"encoder.listen" placeholder:"HOST:PORT" help:"Address of the worker API, health and metrics."`
	Name   string `toml:"name" key:"encoder.name" placeholder:"NAME" help:"Name in answers, metrics and logs, unique in the fleet."`
	Store  string `toml:"store" key:"encoder.store" placeholder:"SOCKET" help:"Socket of the Store, with store.kind = ram. Empty: this Encoder shares nothing."`

	ArenaBytes Bytes `toml:"arena_bytes" key:"encoder.arena_bytes" placeholder:"SIZE" help:"Memory in which every embedding of this process lives. Under up it is 512MiB if not set."`
	CacheBytes Bytes `toml:"cache_bytes" key:"encoder.cache_bytes" placeholder:"SIZE" help:"Part of the arena for embeddings kept after a request. They are served without asking the Store."`

	CrossEncoderCache      bool   `toml:"cross_encoder_cache" key:"encoder.cross_encoder_cache" negatable:"" help:"Take embeddings of other Encoders from the Store and publish own ones."`
	EmbeddingCachePrefix   string `toml:"embedding_cache_prefix" key:"encoder.embedding_cache_prefix" placeholder:"TEXT" help:"Put before every Store key, to keep fleets that share one Store apart."`
	EmbeddingModelIdentity string `toml:"embedding_model_identity" key:"encoder.embedding_model_identity" placeholder:"TEXT" help:"Model name in Store keys. Empty takes the model's own; set it where equal models have different names."`
	Protocol               string `toml:"protocol" key:"encoder.protocol" placeholder:"FORMAT" help:"Format of objects in the Store: a1, Afterimage's own, or v3, to share embeddings with vLLM's Encoders through Mooncake. v3 needs vllm_model, has no checksums, and is the same for all tenants."`
	VLLMModel              string `toml:"vllm_model" key:"encoder.vllm_model" placeholder:"PATH" help:"With v3: the model path or name exactly as vLLM is given it. It is part of the names of pictures, and of keys without embedding_model_identity."`
	VLLMEncoder            string `toml:"vllm_encoder" key:"encoder.vllm_encoder" placeholder:"TEXT" help:"With v3: the encoder field of vLLM's keys, a hash of its settings for the multimodal encoder. The default is that of a vLLM that sets none."`
	VLLMDType              string `toml:"vllm_dtype" key:"encoder.vllm_dtype" name:"vllm-dtype" placeholder:"DTYPE" help:"With v3: vLLM's model dtype, bfloat16, float16 or float32. Embeddings are converted to it on their way to the Store, and back."`
	VLLMHash               string `toml:"vllm_hash" key:"encoder.vllm_hash" placeholder:"HASH" help:"With v3: the hash of vLLM's names of pictures, as its VLLM_MM_HASHER_ALGORITHM: blake3, sha256 or sha512."`

	StoreMaxPendingItems int   `toml:"store_max_pending_items" key:"encoder.store_max_pending_items" placeholder:"N" help:"Embeddings that wait to be published. One more is dropped and counted; its request is served."`
	StoreMaxPendingBytes Bytes `toml:"store_max_pending_bytes" key:"encoder.store_max_pending_bytes" placeholder:"SIZE" help:"The same limit in bytes."`
	StoreReadBufferBytes Bytes `toml:"store_read_buffer_bytes" key:"encoder.store_read_buffer_bytes" placeholder:"SIZE" help:"Memory for the objects that are being read from the Store, by all requests together. More are read in turn, a larger one is encoded. Reads on loan need none."`

	OnUnconfirmed   string `toml:"on_unconfirmed" key:"encoder.on_unconfirmed" placeholder:"WHAT" help:"When the Store cannot say whether it still uses memory of this Encoder: drain gives up the memory and goes on; exit ends the process, as vLLM does."`
	Admission       string `toml:"admission" key:"encoder.admission" placeholder:"WHICH" help:"Embeddings to publish: always all, or at their second-sighting, so that pictures seen once push nothing out of the Store."`
	ReadOrRecompute bool   `toml:"read_or_recompute" key:"encoder.read_or_recompute" negatable:"" help:"Encode instead of reading from the Store where that is expected to be faster."`
	Hedge           bool   `toml:"hedge" key:"encoder.hedge" negatable:"" help:"Start to encode beside a Store read that is late, and take what comes first."`

	// What vLLM can do and an Encoder with a Store cannot. The keys are there to be refused by name.
	EnableLoRA           bool     `toml:"enable_lora" key:"encoder.enable_lora" hidden:"" help:"Refused with cross_encoder_cache."`
	TensorParallelSize   int      `toml:"tensor_parallel_size" key:"encoder.tensor_parallel_size" hidden:"" help:"Refused unless it is 1."`
	PipelineParallelSize int      `toml:"pipeline_parallel_size" key:"encoder.pipeline_parallel_size" hidden:"" help:"Refused unless it is 1."`
	DataParallelSize     int      `toml:"data_parallel_size" key:"encoder.data_parallel_size" hidden:"" help:"Refused unless it is 1."`
	Modalities           []string `toml:"modalities" key:"encoder.modalities" hidden:"" help:"Anything but image is refused with cross_encoder_cache."`
	MMProcessorCacheGB   float64  `toml:"mm_processor_cache_gb" key:"encoder.mm_processor_cache_gb" hidden:"" help:"0 is refused with cross_encoder_cache."`
}

// Prefill configures the role that prefills and decodes.
type Prefill struct {
	Listen         string   `toml:"listen" key:"prefill.listen" placeholder:"HOST:PORT" help:"Address of the worker API, health and metrics."`
	DataListen     string   `toml:"data_listen" key:"prefill.data_listen" placeholder:"HOST:PORT" help:"Address that Encoders send embeddings to. It must be one that they can reach."`
	Name           string   `toml:"name" key:"prefill.name" placeholder:"NAME" help:"Name in answers, metrics and logs, unique in the fleet."`
	Store          string   `toml:"store" key:"prefill.store" placeholder:"SOCKET" help:"Socket of the Store, with store.kind = ram and delivery.mode = direct. Empty: this worker leaves the Store to Encoders."`
	ArenaBytes     Bytes    `toml:"arena_bytes" key:"prefill.arena_bytes" placeholder:"SIZE" help:"Memory for embeddings of requests in work. A request that needs more than all of it is refused. Under up it is 512MiB if not set."`
	ResidentBytes  Bytes    `toml:"resident_bytes" key:"prefill.resident_bytes" placeholder:"SIZE" help:"Most memory for embeddings that are kept after a request. They are used again without any transfer, and leave when requests in work need the arena. 0 keeps none."`
	PrepareTimeout Duration `toml:"prepare_timeout" key:"prefill.prepare_timeout" placeholder:"TIME" help:"How long memory granted to a request is kept for it while its chat call does not come. Decode workers read it too."`
	ItemTimeout    Duration `toml:"item_timeout" key:"prefill.item_timeout" placeholder:"TIME" help:"How long a request waits for an embedding before it is repaired, and at a decode worker for the state of its prompt."`
	StepTokens     int      `toml:"step_tokens" key:"prefill.step_tokens" placeholder:"N" help:"Tokens and image rows of prompts that are computed between two tokens of the answers in work. More makes first tokens of long prompts faster and all others slower."`
	HandoffBytes   Bytes    `toml:"handoff_bytes" key:"prefill.handoff_bytes" placeholder:"SIZE" help:"Memory for states of prompts on their way to decode workers; it has to hold that of a whole context. 0 hands none over: this worker gives all answers itself. Under up with decode workers it is 256MiB if not set."`
}

// Decode configures the role that goes on from prompts that prefill workers have computed.
type Decode struct {
	Listen     string `toml:"listen" key:"decode.listen" placeholder:"HOST:PORT" help:"Address of the worker API, health and metrics."`
	DataListen string `toml:"data_listen" key:"decode.data_listen" placeholder:"HOST:PORT" help:"Address that prefill workers send states of prompts to. It must be one that they can reach."`
	Name       string `toml:"name" key:"decode.name" placeholder:"NAME" help:"Name in answers, metrics and logs, unique in the fleet."`
	ArenaBytes Bytes  `toml:"arena_bytes" key:"decode.arena_bytes" placeholder:"SIZE" help:"Memory for states of prompts that wait for a place in the model's memory. Those of prefill workers on this host stay in theirs."`
}

// Gateway configures the role that clients talk to.
type Gateway struct {
	Listen           string   `toml:"listen" key:"gateway.listen" placeholder:"HOST:PORT" help:"Address of the OpenAI-compatible API."`
	Encoders         []string `toml:"encoders" key:"gateway.encoders" name:"encoder" placeholder:"URL" help:"Encoders to use, e.g. http://10.0.0.7:8100."`
	Prefills         []string `toml:"prefills" key:"gateway.prefills" name:"prefill" placeholder:"URL" help:"Prefill workers to use, e.g. http://10.0.0.8:8200."`
	Decodes          []string `toml:"decodes" key:"gateway.decodes" name:"decode" placeholder:"URL" help:"Decode workers to use, e.g. http://10.0.0.9:8400. With any, prefill workers that hand prompts over (prefill.handoff_bytes) compute prompts only, and these give the answers."`
	MaxBodyBytes     Bytes    `toml:"max_body_bytes" key:"gateway.max_body_bytes" placeholder:"SIZE" help:"Largest request body, images included."`
	MaxImages        int      `toml:"max_images" key:"gateway.max_images" placeholder:"N" help:"Most images of one request, the same one twice counted twice."`
	AllowPrivateURLs bool     `toml:"allow_private_urls" key:"gateway.allow_private_urls" name:"allow-private-urls" help:"Fetch images from loopback and private addresses too. Clients can then reach what this host can."`
	FetchTimeout     Duration `toml:"fetch_timeout" key:"gateway.fetch_timeout" placeholder:"TIME" help:"Time for one image URL, redirects included."`
	FetchAllow       []string `toml:"fetch_allow" key:"gateway.fetch_allow" name:"fetch-allow" placeholder:"HOST" help:"All that images may be fetched from: names, *.NAMES, addresses, ranges such as 10.1.0.0/16. Ranges may be private; names may not lead to private addresses outside of them. Empty allows every public host."`
	FetchDeny        []string `toml:"fetch_deny" key:"gateway.fetch_deny" name:"fetch-deny" placeholder:"HOST" help:"What images are not fetched from in any case, in the same forms."`
	FetchPorts       []string `toml:"fetch_ports" key:"gateway.fetch_ports" name:"fetch-ports" placeholder:"PORT" help:"Ports that images may be fetched from besides 80 and 443."`
	FetchBudget      Bytes    `toml:"fetch_budget_bytes" key:"gateway.fetch_budget_bytes" name:"fetch-budget-bytes" placeholder:"SIZE" help:"Most memory for fetched images of all requests in work. A request waits until there is room for all of its own, for at most 10s."`
	RevisitEntries   int      `toml:"fetch_revisit_entries" key:"gateway.fetch_revisit_entries" name:"fetch-revisit-entries" placeholder:"N" help:"Image URLs whose latest answer is remembered, some 400 bytes each, so that the server is only asked whether the image has changed. It is asked each time. 0 transfers each image anew."`
	RevisitBytes     Bytes    `toml:"fetch_revisit_bytes" key:"gateway.fetch_revisit_bytes" name:"fetch-revisit-bytes" placeholder:"SIZE" help:"Most memory for the files of those. An image without is known by what it was, and transferred again only where an Encoder has to see it; before vLLM workers, always. 0 keeps none."`
	Repairs          int      `toml:"repairs" key:"gateway.repairs" placeholder:"N" help:"How often lost embeddings of one request are made again before the client gets a 503."`
	Routing          string   `toml:"routing" key:"gateway.routing" placeholder:"HOW" help:"How workers are chosen. affinity: the same image goes to the same Encoder, a conversation to the P/D that has seen it, within bounds of load. round-robin, which is vLLM's way, and random are for comparison."`
	DrainNotice      Duration `toml:"drain_notice" key:"gateway.drain_notice" placeholder:"TIME" help:"How long a gateway that SIGTERM has told to leave goes on taking requests while /readyz and /health say 503, for load balancers to see it. Then it takes none, and finishes what it has within server.drain."`
	LogRequests      bool     `toml:"log_requests" key:"gateway.log_requests" name:"log-requests" help:"Add parameters, and sizes of images, to the line that is logged of each request. It never holds prompts, pictures or queries of URLs."`
	Dashboard        bool     `toml:"dashboard" key:"gateway.dashboard" negatable:"" help:"Serve the page at /: the fleet, the latest requests picture by picture, and what reuse saved. It shows no prompts, addresses or names of requests, and no pictures without dashboard_thumbnails."`

	DashboardThumbnails bool `toml:"dashboard_thumbnails" key:"gateway.dashboard_thumbnails" negatable:"" help:"Show small pictures of the latest images on the page, where there are keys to admins only. They are made in the gateway, of images of up to 12 million pixels, kept in memory alone, 256 of them, and never logged."`

	Store        string   `toml:"store" key:"gateway.store" name:"store-socket" placeholder:"SOCKET" help:"Socket of the Store, with store.kind = ram, for the page to show how full it is, and for images that it has to go to the Encoder with the least to do. With mooncake, mooncake.admin does that."`
	SilenceLimit Duration `toml:"silence_limit" key:"gateway.silence_limit" placeholder:"TIME" help:"How long a worker that holds a call may show no sign of life (frozen, host gone) before the call is cut and repaired, or ends in an error once its answer has begun."`

	APIKeys     []string `toml:"api_keys" key:"gateway.api_keys" name:"api-key" placeholder:"KEY" secret:"" help:"API keys to ask clients for, in the clear. They belong to the tenant default and may see the whole fleet. Other users of a host see the flag, but not the variable of the environment."`
	KeysFile    string   `toml:"keys_file" key:"gateway.keys_file" placeholder:"FILE" help:"File of API keys, as hashes, and of the tenants that they belong to, with their limits; 'afterimage keys new' makes keys. It is read again when it changes, and on SIGHUP. With neither kind of keys, everybody may ask."`
	OpenMetrics bool     `toml:"open_metrics" key:"gateway.open_metrics" negatable:"" help:"Show /metrics to everybody, as vLLM does. false asks for a key with admin = true, if there are keys: metrics name tenants."`

	MaxTextRequests  int      `toml:"max_text_requests" key:"gateway.max_text_requests" placeholder:"N" help:"Requests without images that are in work at once; more wait, and tenants take turns. 0 is no limit."`
	MaxImageRequests int      `toml:"max_image_requests" key:"gateway.max_image_requests" placeholder:"N" help:"The same for requests with images, from before their images are fetched. 0 is no limit."`
	MaxQueued        int      `toml:"max_queued" key:"gateway.max_queued" placeholder:"N" help:"Requests of each kind that wait at once. One more gets a 503, unless another tenant takes up more of the line: then the latest of that one does."`
	MaxQueuedBytes   Bytes    `toml:"max_queued_bytes" key:"gateway.max_queued_bytes" placeholder:"SIZE" help:"The same limit in bytes of bodies, which waiting requests hold in memory. 0 is no limit."`
	MaxWait          Duration `toml:"max_wait" key:"gateway.max_wait" placeholder:"TIME" help:"How long a request waits before it gets a 503."`
}

// Transport configures the data connections from Encoders to prefill workers.
type Transport struct {
	Loans   bool   `toml:"loans" key:"transport.loans" negatable:"" help:"Hand embeddings over by reference where both workers are on one host; false copies them through a connection. Encoders and prefill workers read the table."`
	TLSCert string `toml:"tls_cert" key:"transport.tls_cert" placeholder:"FILE" help:"This worker's certificate, in PEM. With tls_key and tls_ca, data connections between hosts are encrypted, and both ends show a certificate. Set all three or none, on all workers."`
	TLSKey  string `toml:"tls_key" key:"transport.tls_key" placeholder:"FILE" help:"The certificate's private key, in PEM."`
	TLSCA   string `toml:"tls_ca" key:"transport.tls_ca" name:"tls-ca" placeholder:"FILE" help:"Certificates of the authorities that the other end's certificate must come from, in PEM."`
	TLSName string `toml:"tls_name" key:"transport.tls_name" placeholder:"NAME" help:"DNS name in the certificates of prefill workers. Empty: the host of their data address."`
}

// Fleet is what gateways and workers know each other by.
type Fleet struct {
	Token     string `toml:"token" key:"fleet.token" placeholder:"TEXT" secret:"" help:"What gateways show to workers, and workers ask for, at all routes but health and metrics. A gateway before vLLM workers shows it too, for their --api-key. Other users of a host see the flag, but not the variable of the environment."`
	TokenFile string `toml:"token_file" key:"fleet.token_file" placeholder:"FILE" help:"The same from a file, a token per line. Gateways show the first, workers take each, so that a token can be replaced while all go on."`
}

// Delivery says how embeddings come to prefill workers.
type Delivery struct {
	Mode    string `toml:"mode" key:"delivery.mode" name:"delivery" placeholder:"MODE" help:"direct: prefill workers read the Store themselves, and Encoders only see what is not in it. p2p: Encoders read the Store and forward what they find. Prefill workers read it."`
	Overlap bool   `toml:"overlap" key:"delivery.overlap" negatable:"" help:"Let a prefill worker begin with a prompt while Encoders still work on its images. Gateways read it."`
}

// Media bounds the pictures that gateways accept and Encoders decode. Both read it, so that a fleet has
// one set of limits.
type Media struct {
	MaxImageBytes  Bytes `toml:"max_image_bytes" key:"media.max_image_bytes" name:"max-image-bytes" placeholder:"SIZE" help:"Largest image file. Gateways and Encoders of a fleet want the same."`
	MaxImagePixels int   `toml:"max_image_pixels" key:"media.max_image_pixels" name:"max-image-pixels" placeholder:"N" help:"Largest image in pixels, read from its header before anything is decoded. An Encoder holds up to 18 bytes for each while it decodes."`
}

// Up configures the command that runs a whole fleet on one host.
type Up struct {
	Encoders     int      `toml:"encoders" key:"up.encoders" placeholder:"N" help:"Encoders to start."`
	Decodes      int      `toml:"decodes" key:"up.decodes" placeholder:"N" help:"Decode workers to start: the prefill worker then computes prompts only, and these give the answers. 0 leaves both to the prefill worker."`
	StartTimeout Duration `toml:"start_timeout" key:"up.start_timeout" placeholder:"TIME" help:"Time for each process to get ready. Large models read slowly from cold disks."`
	LogDir       string   `toml:"log_dir" key:"up.log_dir" placeholder:"DIR" help:"Write each process's log to a file of its own here. Empty: all go to standard error, behind their names."`
}

// Server configures what all HTTP servers share.
type Server struct {
	BusyPoll Duration `toml:"busy_poll" key:"server.busy_poll" placeholder:"TIME" help:"How long an Encoder or P/D looks for the answer of another process of its host (the Store to a call, a P/D to a delivery by loan) before it sleeps. To wake a sleeping core takes 12us to 75us on a virtual machine, longer than such an answer. It takes time of a core and stops by itself on connections where it does not pay: there it is spent once in 64 waits. 0s turns it off. With one core nobody looks."`
	Drain    Duration `toml:"drain" key:"server.drain" placeholder:"TIME" help:"Time for requests in work when the process is told to stop. A second signal cuts it short. Under up it is at most 2s."`
}

// Log configures logging.
type Log struct {
	Level  string `toml:"level" key:"log.level" name:"log-level" placeholder:"LEVEL" help:"debug, info, warn or error."`
	Format string `toml:"format" key:"log.format" name:"log-format" placeholder:"FORMAT" help:"text for people, json for machines."`
}

// Tracing says where spans go.
type Tracing struct {
	Endpoint string `toml:"otlp_endpoint" key:"tracing.otlp_endpoint" name:"otlp-endpoint" placeholder:"URL" help:"OTLP receiver that spans go to, as JSON over HTTP, e.g. http://127.0.0.1:4318; without a path, /v1/traces is asked. Empty takes OTEL_EXPORTER_OTLP_ENDPOINT; if that is not set either, traces of clients are passed on and none are made."`
}
