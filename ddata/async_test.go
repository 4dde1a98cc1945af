// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// Asynchronous requests take effect in their order, and each result reaches the function of its
// request once.
func TestAsyncRequests(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		const requests = 50
		var order []int
		results := make(chan [2]int, 2*requests)
		for i := range requests {
			ddata.UpdateAsync(w.Context(), rs[0], visits, ddata.WriteAll(), func(c crdt.GCounter) (crdt.GCounter, error) {
				order = append(order, i)
				return c.Add(rs[0].Self(), 1), nil
			}, func(c crdt.GCounter, err error) {
				w.wantErr(err, nil)
				results <- [2]int{i, int(c.Value())}
			})
		}
		synctest.Wait()
		w.sleep(1e9)
		close(results)
		got := make([]int, 0, requests)
		for result := range results {
			got = append(got, result[0])
			if result[1] <= result[0] {
				w.Errorf("request %d returned %d, want at least %d", result[0], result[1], result[0]+1)
			}
		}
		slices.Sort(got)
		if !slices.IsSorted(order) || len(got) != requests || len(slices.Compact(got)) != requests {
			w.Errorf("%d results of %d requests, in the order %v", len(got), requests, order)
		}

		read := 0
		for _, level := range []ddata.ReadLevel{ddata.ReadLocal(), ddata.ReadAll()} {
			ddata.GetAsync(w.Context(), rs[1], visits, level, func(c crdt.GCounter, err error) {
				if w.wantErr(err, nil); c.Value() == requests {
					read++
				}
			})
			w.sleep(1e9)
		}
		deleted := false
		ddata.DeleteAsync(w.Context(), rs[2], visits, ddata.WriteAll(), func(err error) { deleted = err == nil })
		w.sleep(1e9)
		ddata.GetAsync(w.Context(), rs[1], visits, ddata.ReadLocal(), func(_ crdt.GCounter, err error) { deleted = deleted && errors.Is(err, ddata.ErrDeleted) })
		if read != 2 || !deleted {
			w.Errorf("%d of 2 reads returned the value, deleted = %t, want true", read, deleted)
		}
	})
}

// An asynchronous request that cannot begin, and one that waits when the replicator ends, get their
// error. A panic of the function does not end the process.
func TestAsyncErrors(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a", "b")[0]
		failed := map[string]error{}
		add := func(ctx context.Context, name string, level ddata.WriteLevel) {
			ddata.UpdateAsync(ctx, r, visits, level, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), 1), nil },
				func(_ crdt.GCounter, err error) { failed[name] = err })
		}
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		add(ended, "canceled", ddata.WriteAll())
		add(w.Context(), "invalid", ddata.WriteTo(1))
		ddata.GetAsync(w.Context(), r, visits, ddata.ReadLocal().RepairPeers(), func(_ crdt.GCounter, err error) { failed["no peers"] = err })
		ddata.GetAsync(w.Context(), r, visits, ddata.ReadLocal(), func(crdt.GCounter, error) { panic("of the program") })
		w.network.Partition([]string{"a"}, []string{"b"})
		add(w.Context(), "waiting", ddata.WriteAll())
		synctest.Wait()
		if err, done := failed["waiting"]; done {
			w.Errorf("the update of all nodes has ended in a partition: %v", err)
		}
		w.must(r.Close(w.Context())) // waits for the functions
		if _, done := failed["waiting"]; !done {
			w.Error("the replicator has ended before the function of a request")
		}
		add(w.Context(), "late", ddata.WriteLocal())
		want := map[string]error{
			"canceled": ddata.ErrCanceled, "invalid": ddata.ErrInvalid, "no peers": ddata.ErrInvalid, "waiting": ddata.ErrStopped, "late": ddata.ErrStopped,
		}
		for name, err := range want {
			if !errors.Is(failed[name], err) {
				w.Errorf("%s: got error %v, want %v", name, failed[name], err)
			}
		}
		if !strings.Contains(w.log.String(), "function of an asynchronous request panicked") {
			w.Error("the log does not report the panic")
		}
	})
}

// The log has a warning when an update raises a value above 75 % of MaxEntry, once for each key and
// rise.
func TestWarningBelowMaxEntry(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{MaxEntry: 1000}, "a")[0]
		set := func(key ddata.Key[crdt.LWWRegister[string]], bytes, warnings int) {
			w.Helper()
			_, err := ddata.Update(w.Context(), r, key, ddata.WriteLocal(), func(v crdt.LWWRegister[string]) (crdt.LWWRegister[string], error) {
				return v.Set(r.Self(), strings.Repeat("x", bytes))
			})
			w.must(err)
			synctest.Wait()
			if got := strings.Count(w.log.String(), "value approaches Config.MaxEntry"); got != warnings {
				w.Errorf("%d bytes of %q: %d warnings, want %d", bytes, key, got, warnings)
			}
		}
		set("a", 700, 0)
		set("a", 745, 1)
		set("a", 750, 1)
		set("a", 900, 1)
		set("a", 600, 1)
		set("a", 740, 2)
		set("b", 950, 3)
		set("a", 100, 3)
		if log := w.log.String(); !strings.Contains(log, "key=b bytes=9") || !strings.Contains(log, "max=1000") {
			w.Error("the log has no line with the key b, its size and the limit")
		}
		// A set grows in small steps, whose encoded values are not measured each time.
		for i := range 100 {
			if err := w.put(r, ddata.WriteLocal(), fmt.Sprintf("element-%03d", i)); errors.Is(err, ddata.ErrTooLarge) {
				break
			}
		}
		synctest.Wait()
		if got := strings.Count(w.log.String(), "value approaches Config.MaxEntry"); got != 4 {
			w.Errorf("a set has grown to the limit: %d warnings, want 4", got)
		}
	})
}
