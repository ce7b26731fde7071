// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"afterimage/internal/sbom"
)

// versionCmd prints the version.
type versionCmd struct {
	SBOM bool   `name:"sbom" help:"Print instead what the program is made of: a bill of materials in CycloneDX, JSON."`
	Of   string `placeholder:"FILE" help:"With --sbom: another build of this program. Empty is this one."`
}

// Run is called by the parser.
func (c versionCmd) Run(a *app) error {
	if c.SBOM {
		return c.bill(a)
	}
	_, err := fmt.Fprintln(a.Stdout, "afterimage", version)
	return err
}

func (c versionCmd) bill(a *app) (err error) {
	path := c.Of
	if path == "" {
		if path, err = os.Executable(); err != nil {
			return err
		}
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil {
		return usageError{fmt.Errorf("--of %s: %w", path, err)}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	return sbom.Write(a.Stdout, sbom.Program{Name: "afterimage", Version: version, SHA256: hex.EncodeToString(sum.Sum(nil)), Build: build})
}
