// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"

	"afterimage/internal/embedding"
)

// TestNamespaceIsToldLater: until it is known under which names Encoders store, nothing is brought and nothing learned.
func TestNamespaceIsToldLater(t *testing.T) {
	r := newRig(t)
	r.learned.space = embedding.Namespace{}
	p := picture(0, 224, 224)
	r.store.set(key(p), object(small.patches()/merge, cols, 12, 0))
	r.Learn(p, p.UUID, small)
	if got := r.one(t, p); got.Result != Unknown || r.store.asked() != 0 {
		t.Errorf("%+v, %d reads", got, r.store.asked())
	}
	for _, bad := range []embedding.Namespace{{}, {Model: "m", Encoder: "e", DType: embedding.Float16, Protocol: embedding.A1}} {
		if r.SetNamespace(bad) == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if err := r.SetNamespace(namespace); err != nil {
		t.Fatal(err)
	}
	if got := r.one(t, p); got.Result != Unknown {
		t.Errorf("what was said before the names were known was learned: %+v", got)
	}
	r.taught(t)
}

// TestNamespaceChanges: what was learned belongs to the names it was learned under, in this process and in the next.
func TestNamespaceChanges(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	if err := r.SetNamespace(namespace); err != nil {
		t.Fatal(err)
	}
	same := r.Bring(t.Context(), r.consumer.Address(), []Picture{picture(0, 224, 224)})
	if got := same.Items[0]; got.Transfer == "" {
		t.Errorf("the same names are others: %+v", got)
	}
	same.End(false)
	r.empty(t)
	batch := &Batch{era: r.learned.era}
	other := namespace
	other.Prefix = "v2"
	if err := r.SetNamespace(other); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.learned.knownIn(batch.era); ok {
		t.Error("a delivery that began before has the frame of another model")
	}
	asked := r.store.asked()
	if got := r.one(t, picture(0, 224, 224)); got.Result != Unknown || r.store.asked() != asked {
		t.Errorf("under other names: %+v", got)
	}
	if err := r.SetNamespace(namespace); err != nil {
		t.Fatal(err)
	}
	r.taught(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names embedding.Namespace
		want  bool
	}{{namespace, true}, {other, false}} {
		r.Relay = r.openUnder(t, c.names)
		if _, known := r.learned.known(); known != c.want {
			t.Errorf("the next process under %s knows the frame: %t", c.names, known)
		}
		if c.want {
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestOldObjectsTeachNothing: an object that was to be read when the names changed says nothing of those stored since,
// though they are of the same pictures.
func TestOldObjectsTeachNothing(t *testing.T) {
	r := newRig(t)
	p := picture(0, 224, 224)
	r.store.set(key(p), object(small.patches()/merge, cols, 12, 0))
	old := wanted(namespace, r.learned.era, p.UUID, small)
	other := namespace
	other.Prefix = "v2"
	if err := r.SetNamespace(other); err != nil {
		t.Fatal(err)
	}
	r.Learn(p, p.UUID, small)
	r.reader.giveBack(r.reader.get(t.Context(), []want{old})[0])
	if f, known := r.learned.known(); known {
		t.Errorf("an object under other names taught %+v", f)
	}
	now := wanted(other, r.learned.era, p.UUID, small)
	r.store.set(now.key, object(small.patches()/merge, cols, 12, 0))
	r.reader.giveBack(r.reader.get(t.Context(), []want{now})[0])
	if _, known := r.learned.known(); !known {
		t.Error("one under the new names taught nothing")
	}
}
