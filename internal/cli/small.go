// SPDX-License-Identifier: Apache-2.0

package cli

import "fmt"

// versionCmd prints the version.
type versionCmd struct{}

// Run is called by the parser.
func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.Stdout, "afterimage", version)
	return err
}
