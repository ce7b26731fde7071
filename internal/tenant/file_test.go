// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// keyed is a file with a key of each tenant, and what stands before.
func keyed(before string, tenants ...string) (text []byte, keys []string) {
	var b strings.Builder
	b.WriteString(before)
	for _, name := range tenants {
		key := NewKey()
		fmt.Fprintf(&b, "\n[[keys]]\ntenant = %q\nhash = %q\n", name, HashOf(key))
		keys = append(keys, key)
	}
	return []byte(b.String()), keys
}

func parse(t *testing.T, text []byte, clear ...string) *Set {
	t.Helper()
	s, err := Parse(text, clear)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A key finds its tenant, with the section's values over those of default; nothing else finds anything.
func TestFileNamesTenantsByKey(t *testing.T) {
	text, keys := keyed(`
salt = "0123456789abcdef"
[default]
requests_per_second = 2.5
concurrent_requests = 4
[tenants.acme]
weight = 3
share = true
burst = 9
image_bytes_per_second = 1_000_000
choose_workers = true
[tenants.zeta]
requests_per_second = 0
`, "acme", "zeta", "plain")
	s := parse(t, text, "operators-own")
	f := func(key, name string, weight int, l Limits, salted, admin bool) {
		t.Helper()
		k := s.Find(key)
		if k == nil {
			t.Fatalf("the key of %s finds nothing", name)
		}
		got := k.Tenant
		if got.Name != name || got.Weight != weight || got.Limits != l || (len(got.Salt()) > 0) != salted || k.Admin != admin {
			t.Errorf("got %+v, admin %v", *got, k.Admin)
		}
	}
	f(keys[0], "acme", 3, Limits{Rate: 2.5, Burst: 9, Concurrent: 4, ImageBytes: 1_000_000}, false, false)
	f(keys[1], "zeta", 1, Limits{Concurrent: 4}, true, false)
	f(keys[2], "plain", 1, Limits{Rate: 2.5, Burst: 3, Concurrent: 4}, true, false)
	f("operators-own", Default, 1, Limits{}, false, true)
	if !s.Find(keys[0]).Tenant.Chooses || s.Find(keys[1]).Tenant.Chooses || s.Find(keys[2]).Tenant.Chooses {
		t.Error("acme, and nobody else, may choose workers")
	}
	for _, other := range []string{"", "sk-afi-", keys[0] + "x", keys[0][:len(keys[0])-1], strings.ToUpper(keys[0]), HashOf(keys[0]).String(), strings.Repeat("x", MaxKeyBytes+1)} {
		if k := s.Find(other); k != nil {
			t.Errorf("%.60q finds a key of %s", other, k.Tenant.Name)
		}
	}
}

func TestFileWithByteOrderMark(t *testing.T) {
	text, keys := keyed("\uFEFFsalt = \"0123456789abcdef\"", "acme")
	if k := parse(t, text).Find(keys[0]); k == nil || k.Tenant.Name != "acme" {
		t.Errorf("the key of acme finds %+v", k)
	}
}

// What is wrong with a file is said with its place and the mend, and no error repeats a key.
func TestFileRefusals(t *testing.T) {
	secret := NewKey()
	hash := HashOf(secret).String()
	f := func(text, words string) {
		t.Helper()
		_, err := Parse([]byte(text), nil)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: got %v, want %q", text, err, words)
		}
		if err != nil && strings.Contains(err.Error(), "tenant.") && !strings.Contains(words, "tenant.") {
			t.Errorf("the error names types of this program: %v", err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
	key := func(more string) string { return "[[keys]]\ntenant = \"a\"\nhash = \"" + hash + "\"\n" + more }
	f("", "no [[keys]]")
	f("\n\nkeyz = 1", "line 3, column 1: unknown key keyz")
	f("[[keys]]\ntenant = 5", "line 2")
	f("[[keys]]\ntenant = 5", "line 2, column 10: keys.tenant: write text, in quotes")
	f("[[keys]]\nadmin = 1", "keys.admin: write true or false")
	f("[tenants.a]\nweight = 'x'", "tenants.a.weight: write a whole number")
	f("[default]\nrequests_per_second = 'x'", "default.requests_per_second: write a number")
	f("keys = 3", "keys is a list of tables: write [[keys]]")
	f("[tenants]\na = 3", "is a table: there are salt, [default]")
	f("default = []", "default is a table")
	f("[[keys]\n", "line 1")
	f("[[keys]]\ntenant = \"a\"\nhash = \"abc\"", `keys[0] (tenant "a", name ""): "abc" is no hash`)
	f("[[keys]]\ntenant = \"a\"\nhash = \"sha256:abcd\"", "is no hash")
	f("[[keys]]\ntenant = \"a\"\nhash = \""+secret+"\"", "that is a key, and files hold hashes only")
	f("[[keys]]\nhash = \""+hash+"\"", "a tenant's name has 1 to 64 bytes")
	f("[[keys]]\ntenant = \"a b\"\nhash = \""+hash+"\"", "no spaces")
	f("[[keys]]\ntenant = \""+strings.Repeat("x", 65)+"\"\nhash = \""+hash+"\"", "1 to 64 bytes")
	f(key(key("")), `keys[1] (tenant "a", name ""): the same key is there already, for tenant "a"`)
	f("salt = \"short\"\n"+key(""), "salt has 5 bytes")
	f("[default]\nrequests_per_second = -1\n"+key(""), "default: requests_per_second = -1")
	f("[tenants.a]\nrequests_per_second = nan\n"+key(""), "tenants.a: requests_per_second = NaN")
	f("[tenants.a]\nrequests_per_second = inf\n"+key(""), "requests_per_second = +Inf")
	f("[tenants.a]\nburst = -1\n"+key(""), "not negative")
	f("[tenants.a]\nweight = 0\n"+key(""), "weight = 0; give 1 to 1000")
	f("[tenants.a]\nlimit = 1\n"+key(""), "unknown key tenants.a.limit")
}

func TestKeysInTheClearRefusals(t *testing.T) {
	for _, keys := range [][]string{{""}, {"a b"}, {"a\n"}, {strings.Repeat("x", MaxKeyBytes+1)}, {"same", "same"}, {"é"}} {
		if _, err := Clear(keys); err == nil || len(keys[0]) > 3 && keys[0] != "same" && strings.Contains(err.Error(), keys[0]) {
			t.Errorf("%.20q: got %v", keys, err)
		}
	}
}

// Salts differ by tenant, secret and request, are equal wherever these are, and cannot be made equal by
// moving a character from one to the other.
func TestSaltsKeepTenantsApart(t *testing.T) {
	text := "[[keys]]\ntenant = \"%s\"\nhash = \"" + HashOf("k").String() + "\"\n"
	salt := func(secret, name string) []byte {
		s := parse(t, []byte("salt = \""+secret+"\"\n"+fmt.Sprintf(text, name)))
		return s.Find("k").Tenant.Salt()
	}
	one, two := "0123456789abcdef", "0123456789abcdefg"
	a := salt(one, "acme")
	seen := map[string]string{}
	for name, s := range map[string][]byte{
		"a": a, "another tenant": salt(one, "acmf"), "another secret": salt("1123456789abcdef", "acme"), "moved": salt(two, "acme"), "moved back": salt(one, "gacme"),
		"own": Narrow(a, "x"), "other own": Narrow(a, "y"), "own of nobody": Narrow(nil, "x"), "own of another": Narrow(salt(one, "b"), "x"),
	} {
		if old, twice := seen[string(s)]; twice || len(s) != 32 {
			t.Errorf("%s is %x, as %q", name, s, old)
		}
		seen[string(s)] = name
	}
	if !bytes.Equal(a, salt(one, "acme")) || !bytes.Equal(Narrow(a, ""), a) {
		t.Error("equal inputs give other salts")
	}
}

// FuzzParse: no file makes the reader do anything but refuse or take it.
func FuzzParse(f *testing.F) {
	text, _ := keyed("[default]\nburst = 1\n[tenants.\"a.b\"]\nshare = true\n", "a.b")
	f.Add(text)
	f.Add([]byte("salt = '''\n'''"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := Parse(text, nil); err == nil && s.Len() == 0 {
			t.Error("a file without keys was taken")
		}
	})
}
