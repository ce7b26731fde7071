// SPDX-License-Identifier: Apache-2.0

package cli

import "afterimage/internal/man"

// examplesOf returns the examples of a command, by its path without the program's name.
func examplesOf(command string) []man.Example { return examples[command] }

// examples are lines that people can copy, of every command; a test parses each of them.
var examples = map[string][]man.Example{
	"": {
		{Does: "Serve the demo model on 127.0.0.1:8000", Line: "afterimage up"},
		{Does: "Ask about a picture, and see where its embedding came from", Line: `afterimage ask --image examples/cat.jpg "Name the colors of the picture."`},
		{Does: "Watch the fleet", Line: "afterimage top"},
		{Does: "See what keeps this host from serving", Line: "afterimage doctor"},
	},
	"up": {
		{Does: "Serve the demo model", Line: "afterimage up"},
		{Does: "Serve a model of your own to others, with three Encoders", Line: "afterimage up --model text.gguf --mmproj vision.gguf --encoders 3 --listen 0.0.0.0:8000"},
		{Does: "Share embeddings with other hosts through Mooncake", Line: "afterimage up --store mooncake"},
		{Does: "Try it without a model", Line: "afterimage up --engine device"},
		{Does: "Ask clients for a key", Line: "afterimage up --api-key token-abc123"},
	},
	"store": {
		{Does: "Run the Store of this host with 8 GiB", Line: "afterimage store --bytes 8GiB --path /run/afterimage/store.sock"},
		{Does: "Look into it", Line: "afterimage store stat --path /run/afterimage/store.sock"},
	},
	"store serve": {{Does: "Run the Store of this host with 8 GiB", Line: "afterimage store serve --bytes 8GiB"}},
	"store ls": {
		{Does: "List all objects of the only Store of this host", Line: "afterimage store ls"},
		{Does: "The first ten, for a program", Line: "afterimage store ls --limit 10 --json"},
	},
	"store stat":   {{Does: "Sum the Store up", Line: "afterimage store stat"}, {Does: "Describe the object whose identifier begins so", Line: "afterimage store stat 3fa2c1"}},
	"store get":    {{Does: "Show what an object is", Line: "afterimage store get 3fa2c1"}, {Does: "Write it to a file", Line: "afterimage store get 3fa2c1 -o object.a1"}},
	"store verify": {{Does: "Check every object, and remove what is bad", Line: "afterimage store verify --rm"}},
	"store rm":     {{Does: "Empty the Store without a question", Line: "afterimage store rm --all --yes --path /run/afterimage/store.sock"}},
	"store warm":   {{Does: "Have the pictures of a list encoded, eight at once", Line: "afterimage store warm --jobs 8 @pictures.txt"}},
	"store export": {{Does: "Write all objects to a file", Line: "afterimage store export embeddings.aix"}, {Does: "Go on with one that was cut off", Line: "afterimage store export --resume embeddings.aix"}},
	"store import": {{Does: "Read objects from a file", Line: "afterimage store import embeddings.aix"}},
	"encoder": {
		{Does: "Run an Encoder that shares its work through the Store of this host", Line: "afterimage encoder --store /run/afterimage/store.sock --name encoder-1 --listen 10.0.0.7:8101"},
		{Does: "With the values of a file", Line: "afterimage encoder --config /etc/afterimage/afterimage.toml"},
	},
	"prefill": {{Does: "Run a prefill worker that other hosts reach", Line: "afterimage prefill --listen 10.0.0.8:8200 --data-listen 10.0.0.8:8201 --name prefill-1"}},
	"decode":  {{Does: "Run a decode worker that prefill workers of other hosts reach", Line: "afterimage decode --listen 10.0.0.9:8400 --data-listen 10.0.0.9:8401 --name decode-1"}},
	"gateway": {
		{Does: "Put a gateway before workers", Line: "afterimage gateway --encoder http://10.0.0.7:8100 --encoder http://10.0.0.7:8101 --prefill http://10.0.0.8:8200"},
		{Does: "Before vLLM workers", Line: "afterimage gateway --port 8000 --encode-servers-urls http://e1:8001 --decode-servers-urls http://d1:8003"},
		{Does: "The same, with Store hits brought past their Encoders", Line: "afterimage gateway --port 8000 --encode-servers-urls http://e1:8001 --decode-servers-urls http://d1:8003 --ec-consumer-zmq-addrs tcp://d1:14579 --relay"},
	},
	"trace": {{Does: "Show what became of a request, by the x-afterimage-trace of its answer", Line: "afterimage trace 4f1c2a9e0b7d4c55a1e2f30918d7c6b5"}},
	"top": {
		{Does: "Watch the fleet; q or Ctrl-C ends it", Line: "afterimage top"},
		{Does: "One look, for a program", Line: "afterimage top --once --json --url http://10.0.0.8:8000"},
	},
	"drain": {{Does: "Have an Encoder leave without a request noticing", Line: "afterimage drain encoder-1 --url http://10.0.0.8:8000"}},
	"ask": {
		{Does: "Ask about a picture", Line: `afterimage ask --image examples/cat.jpg "Name the colors of the picture."`},
		{Does: "Compare two, and see the whole way of each", Line: `afterimage ask --trace -i before.png -i after.png "What has changed?"`},
	},
	"model demo":         {{Does: "Make the demo pair, and count how often it is right", Line: "afterimage model demo --out .cache/models/demo --verify"}},
	"model random":       {{Does: "Make a small pair that runs and says nothing", Line: "afterimage model random --out /tmp/tiny"}},
	"bench smoke":        {{Does: "Check an installation", Line: "afterimage bench smoke --check"}},
	"bench resolver":     {{Does: "Measure hits and misses next to Redis", Line: "afterimage bench resolver --peer redis"}, {Does: "The same with Mooncake", Line: "afterimage bench resolver --store mooncake"}},
	"bench publish":      {{Does: "Measure PUTs, for a program", Line: "afterimage bench publish --json"}},
	"bench transport":    {{Does: "Measure delivery", Line: "afterimage bench transport --check"}},
	"bench overlap":      {{Does: "Measure what beginning early brings", Line: "afterimage bench overlap"}},
	"bench decode":       {{Does: "Measure continuous batching", Line: "afterimage bench decode --check"}},
	"bench all":          {{Does: "Measure everything there is a peer for", Line: "afterimage bench all"}},
	"bench serve":        {{Does: "Put 200 made-up requests on an endpoint", Line: "afterimage bench serve --url http://127.0.0.1:8000 --requests 200 --rate 4"}},
	"bench compare":      {{Does: "Compare two results", Line: "afterimage bench compare before.json after.json"}},
	"bench reassignment": {{Does: "Rerun the published experiment at a tenth of its length", Line: "afterimage bench reassignment --scale 0.1"}},
	"bench relay":        {{Does: "Measure deliveries into vLLM's memory", Line: "afterimage bench relay --check"}},
	"bench gateway":      {{Does: "Measure a gateway before vLLM workers", Line: "afterimage bench gateway"}},
	"bench simulate":     {{Does: "Hold what simulate foretells against a fleet", Line: "afterimage bench simulate"}},
	"simulate":           {{Does: "What reuse gives a made-up traffic", Line: "afterimage simulate --requests 2000 --images 1:0.5,4:0.5"}, {Does: "What it gives yours", Line: "afterimage simulate trace.csv"}},
	"plan":               {{Does: "How many workers a traffic takes for a first token within 2 s", Line: "afterimage plan --ttft 2s --rate 4"}},
	"keys new":           {{Does: "Make a key, and add its hash to a file", Line: "afterimage keys new --tenant acme >> keys.toml"}, {Does: "A key that may look at the whole fleet", Line: "afterimage keys new --tenant ops --admin"}},
	"keys check":         {{Does: "Read a file of keys as a gateway does", Line: "afterimage keys check keys.toml"}},
	"config print":       {{Does: "Show every value and where it comes from", Line: "afterimage config print /etc/afterimage/afterimage.toml"}, {Does: "Only what is not the default", Line: "afterimage config print --changed /etc/afterimage/afterimage.toml"}},
	"config check":       {{Does: "Check a file for the role that will read it", Line: "afterimage config check /etc/afterimage/afterimage.toml --role encoder"}},
	"doctor": {
		{Does: "Look at this host", Line: "afterimage doctor"},
		{Does: "See a gateway's workers, two checks alone", Line: "afterimage doctor --config /etc/afterimage/afterimage.toml --role gateway --only peers,clock"},
		{Does: "At the Mooncake cluster", Line: "afterimage doctor --store mooncake"},
		{Does: "At a vLLM fleet, for a relay", Line: "afterimage doctor --vllm --encode-servers-urls http://e1:8001 --ec-consumer-zmq-addrs tcp://d1:14579"},
	},
	"health": {
		{Does: "Ask the roles of this container", Line: "afterimage health"},
		{Does: "Whether an Encoder with an address of its own has to be started again", Line: "afterimage health --live --url http://127.0.0.1:8101"},
	},
	"completion": {
		{Does: "Complete in this bash", Line: "source <(afterimage completion bash)"},
		{Does: "In every zsh", Line: `afterimage completion zsh > "${fpath[1]}/_afterimage"`},
		{Does: "In every fish", Line: "afterimage completion fish > ~/.config/fish/completions/afterimage.fish"},
	},
	"help":    {{Does: "Explain a command", Line: "afterimage help store warm"}},
	"version": {{Does: "Print the version", Line: "afterimage version"}, {Does: "What the program is made of", Line: "afterimage version --sbom"}},
}
