// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"strings"
	"testing"

	"afterimage/internal/embedding"
)

// The keys in testdata/store/keys.json were written by vLLM.
func TestKeyGolden(t *testing.T) {
	var file struct {
		EncoderHash string `json:"encoder_hash_default"`
		Keys        []struct {
			Name, Namespace, Model, Revision string
			Key                              embedding.Key
			Identifier                       embedding.Identifier
			DType                            string
			MMConfig                         bool `json:"mm_config"`
			Extra                            struct {
				Prefix string `json:"embedding_cache_prefix"`
				Model  string `json:"embedding_model_identity"`
			}
		}
	}
	readJSON(t, "store/keys.json", &file)
	if len(file.Keys) != 5 {
		t.Fatalf("%d keys, want 5", len(file.Keys))
	}
	for _, k := range file.Keys {
		d, err := embedding.ParseDType(k.DType)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		encoder := "encoder:default" // vLLM's text when a model has no multi-modal configuration
		if k.MMConfig {
			encoder = file.EncoderHash
		}
		ns := embedding.Namespace{
			Prefix: k.Extra.Prefix, Model: k.Model, Revision: k.Revision,
			Encoder: encoder, DType: d, Protocol: embedding.V3,
		}
		if err := ns.Validate(); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		if ns.String() != k.Namespace {
			t.Errorf("%s: namespace\n got %s\nwant %s", k.Name, ns, k.Namespace)
		}
		if got := ns.Key(k.Identifier); got != k.Key {
			t.Errorf("%s: key\n got %s\nwant %s", k.Name, got, k.Key)
		}
	}
}

func TestNamespaceValidate(t *testing.T) {
	good := embedding.Namespace{Model: "m", Encoder: "e", DType: embedding.Float16, Protocol: embedding.A1}
	f := func(want string, change func(*embedding.Namespace)) {
		t.Helper()
		ns := good
		change(&ns)
		err := ns.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("", func(*embedding.Namespace) {})
	f("model", func(n *embedding.Namespace) { n.Model = "" })
	f("fingerprint", func(n *embedding.Namespace) { n.Encoder = "" })
	f("dtype code 7", func(n *embedding.Namespace) { n.DType = 7 })
	f(`protocol "v2"`, func(n *embedding.Namespace) { n.Protocol = "v2" })
}

func TestDTypeText(t *testing.T) {
	for _, d := range []embedding.DType{embedding.Float32, embedding.Float16, embedding.BFloat16} {
		text, err := d.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var short embedding.DType = 99
		if err := short.UnmarshalText(text); err != nil || short != d {
			t.Errorf("%s reads back as %v, %v", text, short, err)
		}
		if long, err := embedding.ParseDType(d.String()); err != nil || long != d {
			t.Errorf("%s reads back as %v, %v", d, long, err)
		}
	}
	if _, err := embedding.DType(1).MarshalText(); err == nil {
		t.Error("code 1 has a text")
	}
	for _, s := range []string{"", "float64", "torch.int8", "torch.torch.float32"} {
		if d, err := embedding.ParseDType(s); err == nil {
			t.Errorf("%q parses as %v", s, d)
		}
	}
}
