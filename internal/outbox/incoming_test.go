// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/internal/outbox"
)

// TestIncomingModel compares an Incoming with a map that removes no outcome.
func TestIncomingModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var in outbox.Incoming[string]
		first := map[uint64]string{}
		floor := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				nr := rapid.Uint64Range(1, 100).Draw(t, "nr")
				f := rapid.Uint64Range(0, nr+3).Draw(t, "floor")
				outcome := rapid.SampledFrom([]string{"done", "refused"}).Draw(t, "outcome")
				in.Record(nr, f, outcome)
				if _, ok := first[nr]; !ok && nr >= floor {
					first[nr] = outcome
				}
				floor = max(floor, min(f, nr))
			},
			"": func(t *rapid.T) {
				if in.Floor != floor {
					t.Fatalf("Floor is %d, want %d", in.Floor, floor)
				}
				if err := in.Check(); err != nil {
					t.Fatal(err)
				}
				kept := 0
				for nr := range uint64(102) {
					want, decided := first[nr]
					if got := in.Seen(nr); got != (decided || nr < floor) {
						t.Fatalf("Seen(%d) is %v with floor %d, want %v", nr, got, floor, !got)
					}
					known := decided && nr >= floor
					if !known {
						want = ""
					} else {
						kept++
					}
					if got, ok := in.Outcome(nr); got != want || ok != known {
						t.Fatalf("Outcome(%d) is %q, %v, want %q, %v", nr, got, ok, want, known)
					}
				}
				if len(in.Receipts) != kept {
					t.Fatalf("%d receipts are kept, want %d", len(in.Receipts), kept)
				}
			},
		})
	})
}

func TestIncomingReleasesMemory(t *testing.T) {
	t.Parallel()
	var in outbox.Incoming[int]
	for nr := range uint64(10_000) {
		in.Record(nr+1, 1, 0)
	}
	in.Record(10_001, 10_001, 0)
	if n := cap(in.Receipts); n > 100 {
		t.Errorf("the capacity for receipts is %d after all but one were removed, want at most 100", n)
	}
	if !in.Seen(5) || !in.Seen(10_001) || in.Seen(10_002) {
		t.Error("after receipts were removed, Seen is not true for 5 and 10,001 and false for 10,002")
	}
}

func TestIncomingCheck(t *testing.T) {
	t.Parallel()
	for name, nrs := range map[string][]uint64{
		"zero":            {0},
		"below the floor": {4, 7},
		"twice":           {5, 5},
		"falling":         {7, 6},
	} {
		in := outbox.Incoming[int]{Floor: 5}
		if name == "zero" {
			in.Floor = 0
		}
		for _, nr := range nrs {
			in.Receipts = append(in.Receipts, outbox.Receipt[int]{Nr: nr})
		}
		if in.Check() == nil {
			t.Errorf("%s: Check accepts %v with floor %d", name, nrs, in.Floor)
		}
	}
	in := outbox.Incoming[int]{Floor: 5, Receipts: []outbox.Receipt[int]{{Nr: 5}, {Nr: 9}}}
	if err := in.Check(); err != nil || !slices.IsSortedFunc(in.Receipts, func(a, b outbox.Receipt[int]) int { return int(a.Nr) - int(b.Nr) }) {
		t.Errorf("Check rejects a valid state: %v", err)
	}
}
