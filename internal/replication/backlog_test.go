// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	disk "github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/replication"
)

// Only the last record of each key is written, and its result is reported for all replaced records.
func TestBacklog(t *testing.T) {
	t.Parallel()
	var b replication.Backlog
	store := func(nr uint64, key, data string) replication.Store {
		return replication.Store{Nr: nr, Key: key, Data: []byte(data)}
	}
	text := func(w replication.Writing) string {
		var parts []string
		for _, r := range w.Records {
			parts = append(parts, r.Key+"="+string(r.Data))
		}
		return fmt.Sprint(strings.Join(parts, " "), w.Nrs)
	}
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s\n%s", got, want)
		}
	}
	check(text(b.Take(10, 100)), "[]")
	b.Add([]replication.Store{store(1, "a", "1"), store(2, "b", "2"), store(3, "a", "3"), {Nr: 4, Key: "c"}})
	if b.Len() != 3 {
		t.Errorf("%d wait", b.Len())
	}
	first := b.Take(2, 100)
	check(text(first), "a=3 b=2[1 3 2]")
	b.Add([]replication.Store{store(5, "b", "5")})
	b.Return(first)
	check(text(b.Take(10, 100)), "c= b=5 a=3[4 5]")
	check(text(b.Take(10, 100)), "[]")
	b.Add([]replication.Store{store(6, "large", strings.Repeat("x", 50)), store(7, "d", "7"), store(8, "e", "8")})
	check(text(b.Take(10, 10)), "large="+strings.Repeat("x", 50)+"[6]")
	check(text(b.Take(10, 3)), "d=7[7]")
	b.Add([]replication.Store{store(9, "d", "9")})
	check(text(b.Take(10, 100)), "e=8 d=9[8 9]")

	fit, unfit := replication.Fit([]replication.Store{store(1, "a", "1"), store(2, strings.Repeat("k", 600), "2"), store(3, "c", "3")})
	if len(fit) != 2 || len(unfit) != 1 || !slices.Equal(unfit[0].Nrs, []uint64{2}) || !errors.Is(unfit[0].Err, disk.ErrInvalid) {
		t.Errorf("%v %v", fit, unfit)
	}
}
