// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// exposure is the most that systemd may find of what a unit leaves open, in tenths: 10 of 100 is very good.
const exposure = "15"

// Units are as systemd wants them, and leave little of the host open.
func TestUnits(t *testing.T) {
	analyze, env := tool(t, "systemd-analyze")
	bin := must[string](t)(program())
	dir := t.TempDir()
	found, _ := filepath.Glob(filepath.Join(root, "deploy", "systemd", "afterimage*"))
	var units []string
	for _, file := range found {
		text := must[[]byte](t)(os.ReadFile(file))
		if strings.HasSuffix(file, ".conf") {
			continue
		}
		unit := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/afterimage", bin)), 0o644); err != nil {
			t.Fatal(err)
		}
		units = append(units, unit)
	}
	if len(units) < 7 {
		t.Fatalf("found only %q", units)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(analyze, args...)
		cmd.Env = append(env, "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := cmd.CombinedOutput()
		// Units of the host that it knows nothing of are the host's affair.
		ours := regexp.MustCompile(`(?m)^.*afterimage[-.@].*$`).FindAllString(string(out), -1)
		if err != nil || args[0] == "verify" && len(ours) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run(append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)...)
	for _, unit := range units {
		if strings.HasSuffix(unit, ".service") {
			run("security", "--offline=true", "--no-pager", "--threshold="+exposure, unit)
		}
	}
}

// manifest is what of an object of Kubernetes the tests look at.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		PodSelector struct {
			Expressions []struct{ Values []string } `yaml:"matchExpressions"`
		} `yaml:"podSelector"`
		Selector struct {
			Labels map[string]string `yaml:"matchLabels"`
		}
		ClusterIP string `yaml:"clusterIP"`
		Template  struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				InitContainers []container `yaml:"initContainers"`
				Containers     []container
				Grace          int `yaml:"terminationGracePeriodSeconds"`
				Volumes        []struct {
					Name     string
					EmptyDir *struct{ Medium string } `yaml:"emptyDir"`
				}
			}
		}
	}
	Data map[string]string
}

type container struct {
	Name          string
	Args, Command []string
	Env           []struct{ Name, Value string }
	Ports         []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Liveness  *struct{} `yaml:"livenessProbe"`
	Readiness *struct{} `yaml:"readinessProbe"`
	Lifecycle *struct {
		PreStop *struct {
			Exec *struct{ Command []string }
		} `yaml:"preStop"`
	}
	Resources struct{ Limits map[string]string }
}

// build has kustomize build a folder into a file, and returns what comes out.
func build(t *testing.T, folder, file string) (out []manifest) {
	t.Helper()
	cmd := exec.Command("go", "tool", "-modfile=tools/go.mod", "kustomize", "build", filepath.Join("deploy", "kubernetes", folder))
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	text := must[[]byte](t)(cmd.Output())
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		out = append(out, m)
	}
	return out
}

// fitSchemas holds files against Kubernetes' own schemas, of an old version and of a new one.
func fitSchemas(t *testing.T, files []string) {
	t.Helper()
	python := filepath.Join(root, ".cache", "venv", "bin", "python")
	for _, version := range []string{"1.30", "1.34"} {
		args := append([]string{"-m", "kubernetes_validate", "-k", version, "--strict"}, files...)
		if said, err := exec.Command(python, args...).CombinedOutput(); err != nil {
			t.Errorf("Kubernetes %s: %v\n%s", version, err, said)
		}
	}
}

// component is the label of a role.
const component = "app.kubernetes.io/component"

// referred finds what Kubernetes fills in.
var referred = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// Every overlay builds, fits Kubernetes' schemas, and holds together: variables are defined before they are used,
// workers have probes, limits, the labels of llm-d and a way to leave, and gateways know every worker by the name that
// its headless service gives it.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, folder := range []string{"base", "overlays/one-node", "overlays/mooncake", "overlays/three-way"} {
		services, roles, config := map[string]manifest{}, map[string]string{}, ""
		guarded, budgets := []string{}, map[string]bool{}
		files = append(files, filepath.Join(dir, filepath.Base(folder)+".yaml"))
		all := build(t, folder, files[len(files)-1])
		for _, m := range all {
			if m.Kind == "Service" {
				services[m.Metadata.Name] = m
			}
			config += m.Data["afterimage.toml"]
			switch m.Kind {
			case "NetworkPolicy":
				for _, e := range m.Spec.PodSelector.Expressions {
					guarded = append(guarded, e.Values...)
				}
			case "PodDisruptionBudget":
				budgets[m.Spec.Selector.Labels[component]] = true
			}
		}
		for _, m := range all {
			if m.Kind != "StatefulSet" && m.Kind != "Deployment" {
				continue
			}
			pod := m.Spec.Template.Spec
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				checkContainer(t, folder+" "+m.Metadata.Name, c)
			}
			if role := m.Spec.Template.Metadata.Labels["llm-d.ai/role"]; role != "" {
				roles[m.Metadata.Name] = role
				if m.Spec.Template.Metadata.Labels["llm-d.ai/inference-serving"] != "true" {
					t.Errorf("%s: %s lacks llm-d.ai/inference-serving", folder, m.Metadata.Name)
				}
			}
			if m.Kind != "StatefulSet" {
				continue
			}
			if c := m.Spec.Template.Metadata.Labels[component]; !slices.Contains(guarded, c) || !budgets[c] {
				t.Errorf("%s: strangers reach %s, or all its pods may be evicted at once", folder, m.Metadata.Name)
			}
			if services[m.Spec.ServiceName].Spec.ClusterIP != "None" {
				t.Errorf("%s: %s has no headless service", folder, m.Metadata.Name)
			}
			for i := range m.Spec.Replicas {
				host := fmt.Sprintf("http://%s-%d.%s:", m.Metadata.Name, i, m.Spec.ServiceName)
				if !strings.Contains(config, host) {
					t.Errorf("%s: no gateway knows %s", folder, host)
				}
			}
			stop := pod.Containers[0].Lifecycle
			if stop == nil || stop.PreStop == nil || stop.PreStop.Exec == nil || !strings.Contains(strings.Join(stop.PreStop.Exec.Command, " "), "afterimage drain") || pod.Grace < 100 {
				t.Errorf("%s: %s does not drain before it stops, or has no time to", folder, m.Metadata.Name)
			}
		}
		want := map[string]string{"afterimage-encoder": "encode", "afterimage-prefill": "prefill-decode"}
		switch folder {
		case "overlays/one-node":
			want = map[string]string{"afterimage": "encode-prefill-decode"}
		case "overlays/three-way":
			want["afterimage-prefill"], want["afterimage-decode"] = "prefill", "decode"
		}
		if fmt.Sprint(roles) != fmt.Sprint(want) {
			t.Errorf("%s: roles of llm-d are %v, want %v", folder, roles, want)
		}
	}
	fitSchemas(t, files)
}

// checkContainer checks what the schemas do not.
func checkContainer(t *testing.T, where string, c container) {
	t.Helper()
	defined := map[string]bool{}
	for _, e := range c.Env {
		for _, m := range referred.FindAllStringSubmatch(e.Value, -1) {
			if !defined[m[1]] {
				t.Errorf("%s: %s of %s uses %s, which is not defined before it", where, e.Name, c.Name, m[1])
			}
		}
		defined[e.Name] = true
	}
	for _, word := range append(c.Args, c.Command...) {
		for _, m := range referred.FindAllStringSubmatch(word, -1) {
			if !defined[m[1]] {
				t.Errorf("%s: %s of %s uses %s, which is not defined", where, word, c.Name, m[1])
			}
		}
	}
	if c.Resources.Limits["memory"] == "" {
		t.Errorf("%s: %s has no limit of memory", where, c.Name)
	}
	if c.Name != "mooncake-client" && c.Liveness == nil || c.Name != "mooncake-client" && c.Name != "store" && c.Readiness == nil {
		t.Errorf("%s: %s has no probes", where, c.Name)
	}
}
