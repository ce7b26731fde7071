// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"afterimage/internal/client"
	"afterimage/internal/control"
)

// traceCmd shows what became of a request.
type traceCmd struct {
	Name string `arg:"" name:"request-id" help:"The x-afterimage-trace of an answer. It is the request id too, where the client has sent none of its own; 'afterimage ask --trace' prints it."`
	URL  string `name:"url" env:"AFTERIMAGE_URL" default:"http://127.0.0.1:8000" placeholder:"URL" help:"Gateway that took the request (default ${default}). [$$AFTERIMAGE_URL]"`
	Key  string `name:"api-key" placeholder:"KEY" env:"AFTERIMAGE_API_KEY,OPENAI_API_KEY" help:"API key to show: that of the request's tenant, or an admin's. [$$AFTERIMAGE_API_KEY, $$OPENAI_API_KEY]"`
	JSON bool   `help:"Print the gateway's JSON."`
}

// Run is called by the parser.
func (c *traceCmd) Run(a *app) error {
	if err := gatewayAt(c.URL); err != nil {
		return err
	}
	api := &client.Client{Base: strings.TrimRight(c.URL, "/"), HTTP: &http.Client{}, Key: c.Key}
	t, err := api.Trace(a.ctx, c.Name)
	if err != nil {
		return unanswered(c.URL, err)
	}
	if c.JSON {
		return json.NewEncoder(a.Stdout).Encode(t)
	}
	return writeRequest(a.Stdout, t)
}

// writeRequest prints a trace for people.
func writeRequest(w io.Writer, t control.Trace) error {
	state := "in work"
	if t.Done {
		state = fmt.Sprintf("status %d", t.Status)
	}
	fmt.Fprintf(w, "request %s: %s, on %s, attempts: %d\n", t.Request, state, workersOf(t), t.Attempts)
	if t.Error != "" {
		fmt.Fprintf(w, "error: %s\n", t.Error)
	}
	if len(t.Items) > 0 {
		fmt.Fprintf(w, "P/D asked the Store for %.1f ms and waited %.1f ms for memory\n\n", t.StoreMS, t.GrantMS)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "image\tsource\troad\tencoder\trows\tbytes\tqueue ms\ttransfer ms\tall ms\twait ms\t")
		for _, it := range t.Items {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t\n", it.Index, it.Source, cmp.Or(it.Road, "-"),
				cmp.Or(it.Encoder, "-"), it.Rows, it.Bytes, it.QueueMS, it.TransferMS, it.MS, it.WaitMS)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return writeStageTable(w, t.Stages)
}

// workersOf names who computed the prompt and, where it is another, who gave the answer.
func workersOf(t control.Trace) string {
	if t.Decode == "" {
		return cmp.Or(t.Prefill, "no P/D")
	}
	return fmt.Sprintf("%s and %s (state of %d bytes in %.1f ms)", t.Prefill, t.Decode, t.HandOffBytes, t.HandOffMS)
}

// writeStageTable prints when each stage was done and how long it took.
func writeStageTable(w io.Writer, stages []client.Stage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\tdone at ms\ttook ms\t")
	before := 0.0
	for _, s := range stages {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t\n", s.Name, s.MS, s.MS-before)
		before = s.MS
	}
	return t.Flush()
}
