// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"afterimage/internal/tenant"
)

// keysCmd holds the commands about API keys.
type keysCmd struct {
	New   keysNewCmd   `cmd:"" help:"Make an API key: it is printed once, and the lines with its hash for the file of keys too."`
	Check keysCheckCmd `cmd:"" help:"Read a file of keys as a gateway does, and list whose they are."`
}

// keysNewCmd makes a key.
type keysNewCmd struct {
	Tenant string `required:"" placeholder:"NAME" help:"Whose key it is."`
	Name   string `placeholder:"TEXT" help:"What you know the key by, e.g. who has it."`
	Admin  bool   `help:"Let the key see the whole fleet: addresses of workers, and requests of all tenants."`
}

// Help is shown below the command's own line.
func (*keysNewCmd) Help() string {
	return "The key goes to standard error and the lines for the file to standard output, so that 'afterimage keys new --tenant acme >> keys.toml' adds " +
		"it and shows it to you. A gateway whose gateway.keys_file that is takes it within two seconds."
}

// Run is called by the parser.
func (c *keysNewCmd) Run(a *app) error {
	key := tenant.NewKey()
	lines := fmt.Sprintf("\n[[keys]]\ntenant = %s\n", strconv.Quote(c.Tenant))
	if c.Name != "" {
		lines += fmt.Sprintf("name = %s\n", strconv.Quote(c.Name))
	}
	if c.Admin {
		lines += "admin = true\n"
	}
	lines += fmt.Sprintf("hash = %q\n", tenant.HashOf(key))
	if _, err := tenant.Parse([]byte(lines), nil); err != nil { // before anybody gets it
		return usageError{fmt.Errorf("--tenant %q, --name %q: %w", c.Tenant, c.Name, err)}
	}
	if _, err := io.WriteString(a.Stdout, lines); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.Stderr, "The key of %s, which is shown this once:\n%s\n", c.Tenant, key)
	return err
}

// keysCheckCmd lists the keys of a file.
type keysCheckCmd struct {
	File string `arg:"" placeholder:"FILE" help:"File of keys."`
}

// Run is called by the parser.
func (c *keysCheckCmd) Run(a *app) error {
	keys, err := tenant.Open(c.File, nil, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("%s: no such file; give the path of a file of keys, which 'afterimage keys new' writes", c.File)}
	}
	if err != nil {
		return usageError{err}
	}
	rows := keys.Set().Rows()
	slices.SortFunc(rows, func(x, y tenant.Key) int {
		return cmp.Or(strings.Compare(x.Tenant.Name, y.Tenant.Name), strings.Compare(x.Name, y.Name))
	})
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TENANT\tNAME\tADMIN\tSHARES\tWEIGHT\tREQUESTS/S\tBURST\tAT ONCE\tIMAGE BYTES/S")
	for _, k := range rows {
		t := k.Tenant
		fmt.Fprintf(tw, "%s\t%s\t%v\t%v\t%d\t%s\t%s\t%s\t%s\n", t.Name, cmp.Or(strconv.Quote(k.Name)[1:len(strconv.Quote(k.Name))-1], "-"), k.Admin, len(t.Salt()) == 0, t.Weight,
			limitText(t.Limits.Rate), limitText(t.Limits.Burst), limitText(t.Limits.Concurrent), limitText(t.Limits.ImageBytes))
	}
	return tw.Flush()
}

// limitText writes a limit; none is a dash.
func limitText[T int | int64 | float64](v T) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprint(v)
}
