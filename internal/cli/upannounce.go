// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"afterimage/internal/supervise"
)

// readyLine is the last line of a start that went well. Scripts wait for it.
const readyLine = "afterimage is ready"

// withoutTold points from the reasons that err tells in full to err, which is printed below the table.
func withoutTold(table []supervise.Status, err error) []supervise.Status {
	for i := range table {
		if why := table[i].Reason; why != "" && strings.Contains(err.Error(), why) {
			table[i].Reason = "see below"
		}
	}
	return table
}

// engines says what the fleet computes with, in the words of a P/D, which knows of the layers.
func engines(table []supervise.Status) string {
	for _, st := range slices.Backward(table) {
		if st.Engine != "" {
			return st.Engine
		}
	}
	return ""
}

// announce prints the table of processes, commands to try, with program as the user calls it, and readyLine.
// place is what finds the Store, as newFleet returns it.
func announce(w io.Writer, program string, table []supervise.Status, notice, place string) error {
	fmt.Fprintf(w, "\nafterimage %s\n%s\n\n", version, notice)
	if err := supervise.WriteTable(w, table); err != nil {
		return err
	}
	if text := engines(table); text != "" {
		fmt.Fprintf(w, "\nEngine: %s\n", text)
	}
	gateway := supervise.Dialable(table[len(table)-1].Address)
	question := "What is in this picture?"
	if slices.ContainsFunc(table, func(st supervise.Status) bool { return st.Model == demoName }) {
		question = "Name the colors of the picture."
	}
	url := ""
	if gateway != "127.0.0.1:8000" {
		url = " --url http://" + gateway
	}
	look := ""
	if place != "" {
		look = "  " + program + " store ls " + place + "\n"
	}
	_, err := fmt.Fprintf(w, `
Try, in another terminal (Ctrl-C in this one stops the fleet):
  %[3]s ask%[2]s --image examples/street.jpg "%[4]s"
  curl -s http://%[1]s/v1/models
  curl -s http://%[1]s/v1/chat/completions -H 'content-type: application/json' -d @examples/photo.json
%[6]s
%[5]s
`, gateway, url, program, question, readyLine, look)
	return err
}
