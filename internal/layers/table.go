// SPDX-License-Identifier: Apache-2.0

package layers

// The top of the stack and the packages that stand outside of it: they write or check things and are
// in nobody's way.
const (
	top     = 7
	command = 8
)

// Table is the order of all packages of the module. ARCHITECTURE.md shows the same rows to readers.
var Table = map[string]Rule{
	"embedding": {Layer: 0, Duty: "key, contract, layout, headers v3 and a1; no I/O"},
	"grammar":   {Layer: 0, Duty: "writes JSON schemas as grammars of llama.cpp"},
	"gguf":      {Layer: 0, Duty: "reads and writes GGUF model files"},
	"openai":    {Layer: 0, Duty: "the chat-completions wire: scan, splice, SSE, errors"},
	"ports":     {Layer: 0, Duty: "TCP ports of loopback for programs that have to be given one"},
	"sums":      {Layer: 0, Duty: "SHA-256 of texts while they come in, several side by side"},

	"arena":   {Layer: 1, Duty: "off-heap memory, Buf, quarantine, loans"},
	"fdpass":  {Layer: 1, Duty: "file descriptors over unix sockets, along with bytes"},
	"media":   {Layer: 1, Duty: "bytes to checked pixels: sniff, limits, decode, orientation, digest; guarded fetch"},
	"proxy":   {Layer: 1, Duty: "passes requests on: bodies in shared memory, answers event by event, errors without addresses"},
	"quick":   {Layer: 1, Duty: "short messages between processes of a host; awake for answers that are near"},
	"route":   {Layer: 1, Duty: "peers, rendezvous hashing, prefixes of prompts, bounded load: pure functions over snapshots"},
	"tracing": {Layer: 1, Duty: "W3C trace context from call to call; spans to an OTLP receiver, never waiting for it"},
	"tenant":  {Layer: 1, Duty: "API keys, salt, limits"},

	"admit":         {Layer: 2, Duty: "keys, limits, deadlines and queues before a gateway; the fleet's token before a worker"},
	"cache":         {Layer: 2, Duty: "bounded holder of Bufs: reserve, commit, pin, evict"},
	"control":       {Layer: 2, Duty: "JSON bodies and headers of the calls between gateway and workers; no I/O"},
	"engine":        {Layer: 2, Duty: "the two engine interfaces, behind which models run"},
	"store":         {Layer: 2, Duty: "the Store interface and its error classes"},
	"transport":     {Layer: 2, Duty: "frames, grants, peers on the host and across it", Beside: []string{"control"}},
	"vllm/consumer": {Layer: 2, Duty: "delivers into the memory of vLLM's consumers: control channel, Transfer Engine writes"},

	"batch":          {Layer: 3, Duty: "shares one text model between requests: continuous batching, reuse of prefixes"},
	"engine/device":  {Layer: 3, Duty: "a modelled accelerator: serial device time, real bytes"},
	"engine/llama":   {Layer: 3, Duty: "llama.cpp and mtmd without cgo"},
	"publish":        {Layer: 3, Duty: "after encoding: bounded, asynchronous, best-effort PUTs"},
	"resolve":        {Layer: 3, Duty: "before encoding: one batch question to the Store, reads, validation"},
	"store/mooncake": {Layer: 3, Duty: "the Store that spans hosts"},
	"store/ram":      {Layer: 3, Duty: "the Store of one host, in memory"},
	"vllm/relay":     {Layer: 3, Duty: "brings what the Store has to vLLM's consumers: what is known of pictures, checks, transfer ids"},

	"storefile": {Layer: 4, Duty: "the file that objects of a Store are exported to"},
	"vllm":      {Layer: 4, Duty: "vLLM's side of the border: identifiers, worker bodies, relay"},

	"encoder": {Layer: 5, Duty: "the role that turns images into embeddings"},
	"gateway": {Layer: 5, Duty: "the role that clients talk to: chooses workers, fetches media, streams answers"},
	"client":  {Layer: 5, Duty: "the user's side of the API: ask, and the trace of an answer"},
	"prefill": {Layer: 5, Duty: "the role that prefills and decodes"},

	"admin":     {Layer: 6, Duty: "health and metrics: what every role's server shows without a key"},
	"bench":     {Layer: 6, Duty: "measures and compares with targets and peers", Beside: []string{"admin", "chart", "load", "sim"}},
	"top":       {Layer: 6, Duty: "the fleet in a terminal"},
	"sbom":      {Layer: 6, Duty: "what a Go program is made of, as a bill of materials"},
	"complete":  {Layer: 6, Duty: "how a command line that is being typed can go on, for shells"},
	"man":       {Layer: 6, Duty: "manual pages from a grammar"},
	"chart":     {Layer: 6, Duty: "pages of tables and SVG plots in one file"},
	"dashboard": {Layer: 6, Duty: "the page at a gateway's /: fleet, requests, reuse"},
	"load":      {Layer: 6, Duty: "puts requests on an endpoint and measures the answers"},
	"sim":       {Layer: 6, Duty: "answers what-if questions from image traces"},

	"config":    {Layer: top, Duty: "one configuration of all roles, with the source of each value"},
	"supervise": {Layer: top, Duty: "the processes of up: order, readiness, restarts, end"},
	"cli":       {Layer: top, Duty: "grammar, wiring, ordered start and stop", Beside: []string{"config", "supervise"}},

	"cmd/afterimage": {Layer: command, Duty: "the binary: calls cli", Only: []string{"cli"}},

	"model": {Layer: 4, Duty: "writes seeded GGUF pairs and the demo model",
		Only: []string{"engine", "engine/llama", "gguf", "embedding", "media"}},
	"layers":               {Layer: 0, Duty: "the order of packages and its check", Only: []string{}},
	"system":               {Layer: command, Duty: "tests of all roles together", TestsOnly: true},
	"testkit":              {Layer: command, Duty: "contract suites, faulty connections and stores, data makers", TestsOnly: true},
	"testkit/vllmconsumer": {Layer: command, Duty: "a vLLM consumer's control channel, reservation rules and Transfer Engine, failing on demand", TestsOnly: true},
	"testkit/faultconn":    {Layer: command, Duty: "connections that fail at a byte offset", TestsOnly: true},
}
