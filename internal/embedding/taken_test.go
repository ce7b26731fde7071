// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/json"
	"os"
	"testing"
)

// TestNamespaceOf: the namespace that is read off a key yields the same keys, whatever stands in its fields.
func TestNamespaceOf(t *testing.T) {
	for _, n := range []Namespace{
		{Model: "/models/Qwen2.5-VL-7B-Instruct", Encoder: VLLMDefaultEncoder, DType: BFloat16, Protocol: V3},
		{Prefix: "team@cache", Model: "shared/model", Revision: "rev:1", Encoder: "encoder:default", DType: Float32, Protocol: V3},
		{Prefix: "embedding@model:x", Model: "a@revision:b@id:c", Revision: "@encoder:@dtype:torch.float16", Encoder: "e@protocol:v3", DType: Float16, Protocol: V3},
		{Model: "m@embedding@model:n", Encoder: "e", DType: Float16, Protocol: V3},
	} {
		got, err := NamespaceOf(n.Key("abc@id:d"), "abc@id:d")
		if err != nil || got.Key("other") != n.Key("other") || got.DType != n.DType {
			t.Errorf("%s: %+v, %v", n, got, err)
		}
	}
}

// TestNamespaceOfRecorded: keys that vLLM's code made.
func TestNamespaceOfRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/store/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Keys []struct {
			Namespace, Identifier string
			Key                   Key
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Keys) == 0 {
		t.Fatalf("%d keys, %v", len(golden.Keys), err)
	}
	for _, g := range golden.Keys {
		if got, err := NamespaceOf(g.Key, Identifier(g.Identifier)); err != nil || got.String() != g.Namespace {
			t.Errorf("%s: %s, %v", g.Key, got, err)
		}
	}
}

// TestNamespaceOfRefuses: what is no key of the protocol is none.
func TestNamespaceOfRefuses(t *testing.T) {
	good := string(Namespace{Model: "m", Encoder: "e", DType: Float16, Protocol: V3}.Key("x"))
	for _, key := range []string{
		"", "@id:x", good + "@sum", good[1:], "embedding@model:m@revision:r@encoder:e@dtype:torch.float16@protocol:a1@id:x",
		"embedding@model:m@revision:r@encoder:e@dtype:torch.int8@protocol:v3@id:x", "embedding@model:@revision:r@encoder:e@dtype:torch.float16@protocol:v3@id:x",
		"embedding@model:m@encoder:e@dtype:torch.float16@protocol:v3@id:x",
	} {
		if n, err := NamespaceOf(Key(key), "x"); err == nil {
			t.Errorf("%q: %+v", key, n)
		}
	}
	if _, err := NamespaceOf(Key(good), "y"); err == nil {
		t.Error("the key of another identifier is taken")
	}
}
