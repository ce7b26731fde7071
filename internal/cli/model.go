// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"afterimage/internal/engine/llama"
	"afterimage/internal/gguf"
	"afterimage/internal/model"
)

// modelCmd holds the commands that make model pairs.
type modelCmd struct {
	Demo   demoCmd   `cmd:"" help:"Make the demo pair: SmolLM2-135M and a seeded vision tower that names colours, not objects."`
	Random randomCmd `cmd:"" help:"Make a pair of random weights, the same bytes for the same seed. It runs like a real one and says nothing."`
}

// demoCmd makes and verifies the demo pair.
type demoCmd struct {
	Out      string `placeholder:"DIR" required:"" help:"Folder for text.gguf and mmproj.gguf. A pair that is there is kept."`
	SmolLM2  string `name:"smollm2" placeholder:"FILE" help:"SmolLM2-135M-Instruct in GGUF. Empty takes what 'make deps' fetched."`
	Verify   bool   `help:"Encode painted pictures and count the cells whose colour is named right; fail below 85 %."`
	Pictures int    `placeholder:"N" default:"40" help:"Pictures to verify with, 16 cells each (default ${default})."`

	EngineDir string `placeholder:"DIR" env:"AFTERIMAGE_ENGINE_DIR" help:"Folder of the native libraries, for --verify. Empty looks where 'make deps' puts them. [$$AFTERIMAGE_ENGINE_DIR]"`
	Threads   int    `placeholder:"N" default:"1" help:"Threads to verify with (default ${default})."`
}

// Run is called by the parser.
func (c *demoCmd) Run(a *app) error {
	if !pairIn(c.Out) {
		smol := c.SmolLM2
		if smol == "" {
			var err error
			if smol, err = findSmolLM2(caches()); err != nil {
				return fmt.Errorf("run 'make deps', or name the file with --smollm2; %w", err)
			}
		}
		if err := model.WriteDemo(c.Out, smol); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Stdout, "model demo: %s and %s are in %s\n", model.TextFile, model.ProjectorFile, c.Out)
	if !c.Verify {
		return nil
	}
	ctx, stop := interruptible(a.ctx, func() {})
	defer stop()
	return c.verify(ctx, a)
}

// verify runs the pair's Encoder over painted pictures.
func (c *demoCmd) verify(ctx context.Context, a *app) (err error) {
	if c.Pictures < 1 {
		return usageError{fmt.Errorf("--pictures %d: give at least 1", c.Pictures)}
	}
	dir, err := llama.FindDir(c.EngineDir)
	if err != nil {
		return err
	}
	lib, err := llama.Open(dir, llama.GPUOff)
	if err != nil {
		return err
	}
	textFile := filepath.Join(c.Out, model.TextFile)
	text, err := gguf.Open(textFile)
	if err != nil {
		return err
	}
	enc, err := llama.NewEncoder(lib, llama.EncoderConfig{
		Model: textFile, MMProj: filepath.Join(c.Out, model.ProjectorFile), Threads: c.Threads,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()
	res, err := model.Verify(ctx, enc, text, c.Pictures, func(done, total int) {
		if done%10 == 0 || done == total {
			fmt.Fprintf(a.Stderr, "model demo: %d of %d pictures\n", done, total)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "model demo: %d of %d cells named right (%.1f %%, want %.0f %%), %v per picture\n",
		res.Right, res.Cells, 100*res.Share(), 100*model.VerifyTarget, res.Encode.Round(time.Millisecond))
	return res.Err()
}

// randomCmd makes a random pair.
type randomCmd struct {
	Out       string `placeholder:"DIR" required:"" help:"Folder for text.gguf and mmproj.gguf, which are replaced."`
	Projector string `placeholder:"KIND" enum:"mlp,internvl,gemma3,qwen2vl" default:"mlp" help:"mlp, internvl, gemma3 or qwen2vl (default ${default})."`
	Size      string `placeholder:"SIZE" enum:"tiny,small,bench" default:"tiny" help:"tiny, small or bench: 2 ms to 100 ms per picture on one thread (default ${default})."`
	Seed      uint64 `placeholder:"N" default:"1" help:"Seed of all weights (default ${default})."`
}

// Run is called by the parser.
func (c *randomCmd) Run(a *app) error {
	err := model.WriteRandom(c.Out, model.RandomOptions{
		Projector: model.Projector(c.Projector), Size: model.Size(c.Size), Seed: c.Seed,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "model random: %s and %s are in %s\n", model.TextFile, model.ProjectorFile, c.Out)
	return nil
}
