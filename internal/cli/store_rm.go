// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// storeRmCmd removes objects.
type storeRmCmd struct {
	Keys    []string `arg:"" optional:"" placeholder:"KEY" help:"Keys to remove, whole."`
	Prefix  string   `placeholder:"PREFIX" help:"Remove all keys that begin with this."`
	All     bool     `help:"Remove everything."`
	Yes     bool     `short:"y" help:"Do not ask."`
	storeAt `embed:""`
}

// Run is called by the parser.
func (c *storeRmCmd) Run(a *app) error {
	ways := 0
	for _, given := range []bool{len(c.Keys) > 0, c.Prefix != "", c.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usageError{errors.New("say what to remove, in one way: keys, --prefix or --all")}
	}
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		if c.Yes && !t.named {
			return usageError{fmt.Errorf("--yes: name the Store that is meant, too: %s", t.flag)}
		}
		keys, bytes, err := c.find(ctx, t)
		if err != nil {
			return err
		}
		if len(keys) > 0 && !c.Yes {
			if err := confirm(a, fmt.Sprintf("Remove %s, %s, from the Store at %s?", counted(len(keys), "object"), sizeText(bytes), t.path)); err != nil {
				return err
			}
		}
		if err := c.remove(ctx, t, newMeter(a.Stderr, "rm"), keys); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(a.Stdout, map[string]int64{"removed": int64(len(keys)), "bytes": bytes})
		}
		_, err = fmt.Fprintf(a.Stdout, "rm: %s, %s\n", counted(len(keys), "object"), sizeText(bytes))
		return err
	})
}

// find returns what there is to remove. A key that was named must be there.
func (c *storeRmCmd) find(ctx context.Context, t *shelfTool) (keys []embedding.Key, bytes int64, err error) {
	if len(c.Keys) == 0 {
		err = t.each(ctx, c.Prefix, func(e store.Entry) error {
			keys, bytes = append(keys, e.Key), bytes+e.Bytes
			return nil
		})
		return keys, bytes, err
	}
	for _, k := range c.Keys {
		keys = append(keys, embedding.Key(k))
	}
	states, err := t.Exists(ctx, keys)
	if err != nil {
		return nil, 0, err
	}
	for i, s := range states {
		if !s.Present {
			return nil, 0, fmt.Errorf("no object has the key %q; nothing was removed", keys[i])
		}
		bytes += s.Bytes
	}
	return keys, bytes, nil
}

// remove goes in batches, so that it can be seen and stopped.
func (c *storeRmCmd) remove(ctx context.Context, t *shelfTool, m *meter, keys []embedding.Key) error {
	defer m.end()
	for from := 0; from < len(keys); from += listPage {
		to := min(from+listPage, len(keys))
		if err := t.Remove(ctx, keys[from:to]); err != nil {
			return fmt.Errorf("%w; %d of %d objects were removed", err, from, len(keys))
		}
		m.at(int64(to), int64(len(keys)), "")
	}
	return nil
}

// confirm asks the person at the terminal; without one it is an error.
func confirm(a *app, question string) error {
	if !isTerminal(os.Stdin) {
		return usageError{errors.New(question + " There is nobody to ask; add --yes")}
	}
	fmt.Fprint(a.Stderr, question, " [y/N] ")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return errors.New("nothing was removed")
}
