// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestHeldJSON(t *testing.T) {
	want := Held{Boot: "6f1c", Version: 3, Whole: true, In: Sums{1, math.MaxUint64}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if text := `{"boot":"6f1c","version":3,"whole":true,"in":"AQAAAAAAAAD//////////w=="}`; string(b) != text {
		t.Errorf("%s, want %s", b, text)
	}
	var got Held
	if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got.In, want.In) || got.Out != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for body, says := range map[string]string{
		`{"in":"AQAA"}`: "3 bytes", `{"out":"§"}`: "illegal base64", `{"in":[1]}`: "cannot unmarshal", `{"version":-1}`: "cannot unmarshal",
	} {
		if err := json.Unmarshal([]byte(body), &Held{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", body, err, says)
		}
	}
}
