// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"afterimage/internal/config"
)

// deploy is the folder of units and manifests.
const deploy = "../../deploy"

// filesOf finds files below deploy.
func filesOf(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(deploy, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s (%v)", pattern, err)
	}
	return found
}

// What units and manifests have the program do, its grammar takes.
func TestDeployedCommandsParse(t *testing.T) {
	parser := (Program{}).parser()
	parse := func(file string, words []string) {
		t.Helper()
		if _, err := parser.Parse(words); err != nil {
			t.Errorf("%s: %q: %v", file, words, err)
		}
	}
	names := map[string]string{} // of units, by what they call their workers: /v1/fleet and drain go by it
	for _, file := range filesOf(t, "systemd/*.service") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/afterimage (.+)$`).FindSubmatch(text)
		if m == nil {
			t.Errorf("%s starts something else", file)
			continue
		}
		words := strings.Fields(string(m[1]))
		parse(file, words)
		if i := slices.Index(words, "--name"); i >= 0 {
			if other := names[words[i+1]]; other != "" {
				t.Errorf("%s calls its worker %s, and so does %s", file, words[i+1], other)
			}
			names[words[i+1]] = file
		}
	}
	n := 0
	for _, file := range filesOf(t, "kubernetes/*/*.yaml") {
		n += parseManifest(t, file, parse)
	}
	for _, file := range filesOf(t, "kubernetes/overlays/*/*.yaml") {
		n += parseManifest(t, file, parse)
	}
	if n < 10 || len(names) < 3 {
		t.Errorf("only %d commands found in manifests, and %d names of workers in units", n, len(names))
	}
}

// Units of one host listen at addresses of their own: what flags say, with two instances of a template, else the default.
func TestUnitsShareNoPort(t *testing.T) {
	defaults, taken := load(t), map[string]string{}
	for role, keys := range listeners {
		found := filesOf(t, "systemd/afterimage-"+string(role)+"*.service")
		unit, err := os.ReadFile(found[0])
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v", found, err)
		}
		for _, key := range keys {
			_, port, err := net.SplitHostPort(text(defaults, key))
			if err != nil {
				t.Fatal(err)
			}
			_, name, _ := strings.Cut(key, ".")
			if _, after, ok := strings.Cut(string(unit), "--"+strings.ReplaceAll(name, "_", "-")+" ${AFTERIMAGE_HOST}:"); ok {
				port = strings.Fields(after)[0]
			}
			for _, instance := range []string{"00", "01"} {
				at := strings.ReplaceAll(port, "%i", instance)
				who := string(role) + " " + key
				if other := taken[at]; other != "" && other != who && role != config.RoleUp && other != "up gateway.listen" { // up is there instead of all others
					t.Errorf("port %s: %s and %s", at, who, other)
				}
				taken[at] = who
			}
		}
	}
	if len(taken) != 12 {
		t.Errorf("these ports are taken: %v", taken)
	}
}

// parseManifest parses the commands of a file of manifests, and returns how many there were.
func parseManifest(t *testing.T, file string, parse func(string, []string)) (n int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var tree any
		if err := yaml.Unmarshal([]byte(doc), &tree); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		walk(tree, func(key string, value any) {
			switch v := value.(type) {
			case []any:
				words := texts(v)
				if key == "args" { // of the image's entry point, which is the program
					parse(file, words)
					n++
				}
				if key == "command" && len(words) == 3 && words[0] == "/bin/sh" {
					line, ok := strings.CutPrefix(words[2], "exec afterimage ")
					if !ok {
						t.Errorf("%s runs %s", file, words[2])
					}
					parse(file, wordsOf(line))
					n++
				}
			}
		})
	}
	return n
}

func texts(list []any) (out []string) {
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// walk calls f for every key of a tree.
func walk(tree any, f func(key string, value any)) {
	switch v := tree.(type) {
	case map[any]any:
		for k, child := range v {
			if key, ok := k.(string); ok {
				f(key, child)
			}
			walk(child, f)
		}
	case []any:
		for _, child := range v {
			walk(child, f)
		}
	}
}

// Configurations of deploy/ are read, and fit the roles that read them, but for files that are mounted there, and those of
// the image.
func TestDeployedConfigurations(t *testing.T) {
	for _, file := range append(filesOf(t, "kubernetes/*/*.toml"), filesOf(t, "kubernetes/overlays/*/*.toml")...) {
		l, err := config.Load(config.Input{File: file})
		if err != nil {
			t.Error(err)
			continue
		}
		if len(l.Gateway.Encoders) == 0 || len(l.Gateway.Prefills) == 0 {
			t.Errorf("%s names no workers", file)
		}
		if (len(l.Gateway.Decodes) > 0) != (l.Prefill.HandoffBytes > 0) {
			t.Errorf("%s has %d decode workers, and %v for what P/Ds hand over", file, len(l.Gateway.Decodes), l.Prefill.HandoffBytes)
		}
		for _, role := range []config.Role{config.RoleEncoder, config.RolePrefill, config.RoleDecode, config.RoleGateway} {
			err := l.Validate(role)
			for line := range strings.SplitSeq(errText(err), "\n") {
				if line != "" && !strings.Contains(line, "/models/") && !strings.Contains(line, "/opt/afterimage/engine") {
					t.Errorf("%s for %s: %s", file, role, line)
				}
			}
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The container file copies what there is, and starts the program.
func TestContainerFile(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(deploy, "container", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^COPY (?:--from=\S+ )?(.+) \S+$`).FindAllStringSubmatch(string(file), -1) {
		if strings.Contains(m[0], "--from=") {
			continue
		}
		for src := range strings.FieldsSeq(m[1]) {
			if _, err := os.Stat(filepath.Join("../..", src)); err != nil {
				t.Errorf("%s: %v", m[0], err)
			}
		}
	}
	ports := []string{}
	for _, keys := range listeners {
		for _, key := range keys {
			_, port, err := net.SplitHostPort(text(load(t), key))
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	if want := "\nEXPOSE " + strings.Join(slices.Compact(ports), " ") + "\n"; !strings.Contains(string(file), want) {
		t.Errorf("the container file lacks %q, the ports that roles listen at by default", want)
	}
	for _, want := range []string{"\nUSER 10001:10001\n", `ENTRYPOINT ["/usr/local/bin/afterimage"]`, ` CMD ["/usr/local/bin/afterimage", "health"]`, "AFTERIMAGE_ENGINE_DIR=/opt/afterimage/engine", "scripts/deps.sh --no-model"} {
		if !strings.Contains(string(file), want) {
			t.Errorf("the container file lacks %q", want)
		}
	}
}
