// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// quick writes some keys to two nodes. It reports whether all nodes to which it sent a write were
// able to reply.
func (w *world) quick(r *ddata.Replicator) bool {
	w.Helper()
	began := time.Now()
	for i := range 8 {
		w.must(w.add(r, ddata.Key[crdt.GCounter](fmt.Sprint("key-", i)), ddata.WriteTo(2), 1))
	}
	return time.Since(began) < 100*time.Millisecond
}

// With PreferOldest, requests go to the oldest nodes. Without PreferOldest, requests go to reachable nodes before unreachable nodes.
func TestRequestOrder(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{PreferOldest: true}, "a", "b", "c")
		w.sleep(time.Second)
		rs[1].Node().Stop()
		<-rs[1].Node().Done()
		if !w.quick(rs[2]) {
			t.Error("a request was sent to a node other than the oldest ones")
		}
	})
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		rs[1].Node().Stop()
		<-rs[1].Node().Done()
		w.until(rs[0].Node(), func(s *cluster.State) bool { return len(s.Unreachable) > 0 })
		synctest.Wait()
		if !w.quick(rs[0]) {
			t.Error("a request was sent to an unreachable node")
		}
	})
}

// The settings of Config reach the protocol.
func TestConfigReachesProtocol(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicate(w.cluster("a")[0], ddata.Config{MaxKeys: 1, MaxRequests: 1})
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		w.wantErr(w.add(r, "another", ddata.WriteLocal(), 1), ddata.ErrFull)
	})
	in(t, func(w *world) {
		nodes := w.cluster("a", "b")
		r := w.replicate(nodes[0], ddata.Config{})
		w.replicate(nodes[1], ddata.Config{MaxKeys: 1})
		synctest.Wait()
		w.must(w.add(r, visits, ddata.WriteAll(), 1))
		err := w.add(r, "another", ddata.WriteAll(), 1)
		w.wantErr(err, ddata.ErrQuorum)
		w.wantErr(err, ddata.ErrFull)
		if errors.Is(err, ddata.ErrType) || !strings.Contains(err.Error(), `too many keys: no room for "another" on 1 other replicas`) {
			t.Errorf("got error %v, want one about the number of keys only", err)
		}
	})
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{DisableDeltas: true}, "a", "b")
		for range 3 {
			w.must(w.add(rs[0], visits, ddata.WriteAll(), 1))
		}
		s, err := rs[0].Stats(w.Context())
		w.must(err)
		if sent := s.Protocol.Sent; sent["delta"] != 0 || sent["write"] != 3 {
			t.Errorf("with DisableDeltas, the node sent %d deltas and %d writes, want 0 and 3", sent["delta"], sent["write"])
		}
	})
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{MaxRequests: 1}, "a", "b")
		w.network.Partition([]string{"a"}, []string{"b"})
		done := make(chan error, 1)
		go func() { done <- w.add(rs[0], visits, ddata.WriteAll(), 1) }()
		synctest.Wait()
		w.wantErr(w.add(rs[0], visits, ddata.WriteAll(), 1), ddata.ErrBusy)
		w.wantErr(<-done, ddata.ErrQuorum)
	})
	in(t, func(w *world) {
		n := w.cluster("a")[0]
		_, err := ddata.Start(w.Context(), n, ddata.Config{Durable: []string{"*"}, Opener: &disks{}, DurableMarkerTTL: -1})
		if err == nil || !strings.Contains(err.Error(), "DurableMarkerTTL") {
			t.Errorf("negative DurableMarkerTTL: got error %v, want one that contains the field", err)
		}
	})
}

// If write-behind fails to write records, it writes them once the disk works, without another
// change.
func TestWriteBehindRetry(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{}
		r := w.replicate(w.cluster("a")[0], ddata.Config{Durable: []string{"*"}, Opener: d, WriteBehind: time.Second})
		d.set(errDisk, nil)
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		w.sleep(5 * time.Second)
		if d.keys() != 0 {
			t.Fatal("the failing disk has stored a record")
		}
		d.set(nil, nil)
		w.sleep(3 * time.Second)
		if d.keys() != 1 {
			t.Error("the failed write was not retried")
		}
	})
}

// A Delete that failed on disk is retried, and the key does not return.
func TestDeleteRetryAfterDiskFailure(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{}
		cfg := ddata.Config{Durable: []string{"*"}, Opener: d}
		r := w.replicate(w.cluster("a")[0], cfg)
		w.must(w.add(r, visits, ddata.WriteLocal(), 7))
		d.set(errDisk, nil)
		w.wantErr(ddata.Delete(w.Context(), r, visits, ddata.WriteLocal()), ddata.ErrStore)
		d.set(nil, nil)
		w.wantErr(ddata.Delete(w.Context(), r, visits, ddata.WriteLocal()), ddata.ErrDeleted)
		n := r.Node()
		w.must(n.Shutdown(w.Context()))
		<-n.Done()
		r = w.replicate(w.start("a"), cfg)
		if _, err := w.get(r, visits, ddata.ReadLocal()); err == nil {
			t.Error("the deleted key exists after the restart")
		}
	})
}

// A leaving node sends large values as well.
func TestLeaveSendsLargeValues(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b")
		key := ddata.Key[crdt.GSet[string]]("large")
		_, err := ddata.Update(w.Context(), rs[1], key, ddata.WriteLocal(), func(s crdt.GSet[string]) (crdt.GSet[string], error) {
			return s.Add(strings.Repeat("x", 60<<10), strings.Repeat("y", 60<<10))
		})
		w.must(err)
		w.must(rs[1].Node().Shutdown(w.Context()))
		<-rs[1].Done()
		synctest.Wait() // all received packets are merged
		if _, err := ddata.Get(w.Context(), rs[0], key, ddata.ReadLocal()); err != nil {
			t.Errorf("the large value is missing on the other node: %v", err)
		}
	})
}
