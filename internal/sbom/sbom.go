// SPDX-License-Identifier: Apache-2.0

// Package sbom writes what a Go program is made of as a bill of materials in CycloneDX 1.6, JSON. What it says comes
// from the build information that the linker leaves in the program: the modules with their versions and sums, and
// the settings of the build. The same program gives the same bytes: there is no time and no random number in it.
package sbom

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
)

// Program is what a bill is about.
type Program struct {
	Name    string
	Version string
	SHA256  string // of the file, in hex; "" leaves it out
	Build   *debug.BuildInfo
}

type bill struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// Write writes the bill of p.
func Write(w io.Writer, p Program) error {
	own := component{Ref: p.Name, Type: "application", Name: p.Name, Version: p.Version, Licenses: make([]license, 1)}
	own.Licenses[0].License.ID = "Apache-2.0"
	if p.SHA256 != "" {
		own.Hashes = []hash{{"SHA-256", p.SHA256}}
	}
	for _, s := range p.Build.Settings {
		own.Properties = append(own.Properties, property{"go:build:" + s.Key, s.Value})
	}
	toolchain := component{Ref: "pkg:golang/std@" + strings.TrimPrefix(p.Build.GoVersion, "go"), Type: "library", Name: "std", Version: p.Build.GoVersion}
	toolchain.PURL = toolchain.Ref
	b := bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{own}, Components: []component{toolchain},
	}
	needs := []string{toolchain.Ref}
	for _, m := range p.Build.Deps {
		c, err := module(m)
		if err != nil {
			return err
		}
		b.Components, needs = append(b.Components, c), append(needs, c.Ref)
	}
	b.Dependencies = []dependency{{own.Ref, needs}}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(b)
}

// module describes a dependency, or what replaces it.
func module(m *debug.Module) (component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + url.PathEscape(m.Version)
	c := component{Ref: purl, Type: "library", Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum == "" {
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("sbom: sum of %s: %w", m.Path, err)
	}
	// Go's sum is the SHA-256 of a list of the module's files and their sums.
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	return c, nil
}
