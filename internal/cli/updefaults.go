// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
)

// upArenaBytes is the default of each worker's arena under up, where several share one host.
const upArenaBytes = 512 * config.MiB

// upHandoffBytes is the default of the P/D's memory for states of prompts under up with decode workers.
const upHandoffBytes = 256 * config.MiB

// upDrain bounds the time for requests in work under up, which as a whole stops within 5 s.
const upDrain = 2 * time.Second

// checkTotal refuses arenas that do not fit into memory together, of which the kernel would kill one
// process after another.
func checkTotal(c *config.Config) error {
	total := config.Bytes(c.Up.Encoders)*c.Encoder.ArenaBytes + c.Prefill.ArenaBytes + c.Prefill.HandoffBytes + config.Bytes(c.Up.Decodes)*c.Decode.ArenaBytes
	if c.Store.Kind != config.StoreNone {
		total += c.Store.Bytes
	}
	limit, whose := arena.Limit()
	if int64(total) <= limit {
		return nil
	}
	gib := func(n int64) float64 { return float64(n) / float64(config.GiB) }
	decodes, or := "", ""
	if c.Up.Decodes > 0 {
		decodes = fmt.Sprintf(" + prefill.handoff_bytes (%v) + %d x decode.arena_bytes (%v)", c.Prefill.HandoffBytes, c.Up.Decodes, c.Decode.ArenaBytes)
		or = ", up.decodes"
	}
	return fmt.Errorf("%d x encoder.arena_bytes (%v) + prefill.arena_bytes (%v)%s + store.bytes (%v) are %.1f GiB, more than the %s, "+
		"%.1f GiB; lower one of them%s or up.encoders", c.Up.Encoders, c.Encoder.ArenaBytes, c.Prefill.ArenaBytes, decodes, c.Store.Bytes,
		gib(int64(total)), whose, gib(limit), or)
}

// upDefaults fills in what up chooses itself. It returns what to tell of the model.
func upDefaults(l *config.Loaded, caches []string) (notice string, err error) {
	if err = upSizes(l); err != nil {
		return "", err
	}
	if notice, err = upModel(l, caches); err != nil {
		return "", err
	}
	if g := l.Gateway; g.KeysFile != "" || len(g.APIKeys) > 0 {
		notice += "\nIt asks for API keys: 'ask' takes one from OPENAI_API_KEY, curl needs -H \"Authorization: Bearer KEY\"."
	}
	return notice, nil
}

// upSizes fills in the memory of a fleet that has one host, and its time to stop.
func upSizes(l *config.Loaded) (err error) {
	set := func(key, text string) {
		if err == nil {
			err = l.Set(key, text, "up")
		}
	}
	for _, key := range []string{"encoder.arena_bytes", "prefill.arena_bytes"} {
		if l.Source(key) == "default" {
			set(key, upArenaBytes.String())
		}
	}
	if l.Up.Decodes > 0 && l.Source("prefill.handoff_bytes") == "default" {
		set("prefill.handoff_bytes", upHandoffBytes.String())
	}
	if l.Store.Kind == config.StoreMooncake && l.Source("store.bytes") == "default" {
		set("store.bytes", upMooncakeBytes.String())
	}
	if time.Duration(l.Server.Drain) > upDrain {
		set("server.drain", upDrain.String())
	}
	return err
}

// upModel fills in the demo where no model is named. It returns what to tell of the model.
func upModel(l *config.Loaded, caches []string) (notice string, err error) {
	switch {
	case l.Engine.Kind == config.EngineDevice:
		return "Model: none. The engine is a modelled accelerator; its answers are made up.", nil
	case l.Model.Path != "":
		return fmt.Sprintf("Model: %s with %s", l.Model.Path, l.Model.MMProj), nil
	}
	demo, err := modelOf(l.Model, l.Engine.Kind, caches)
	if err != nil {
		return "", err
	}
	for _, part := range [][2]string{
		{"model.path", demo.Path}, {"model.mmproj", demo.MMProj}, {"model.name", demo.Name}, {"model.chat_template", demo.ChatTemplate},
	} {
		if err := l.Set(part[0], part[1], "up"); err != nil {
			return "", err
		}
	}
	return "Model: the built-in demo, SmolLM2-135M with a seeded vision tower.\n" +
		"It sees colours, not objects; ask it for anything else and it makes it up.\n" +
		"Your own pair: afterimage up --model text.gguf --mmproj vision.gguf", nil
}
