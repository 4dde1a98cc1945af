// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// A majority read of one node returns the majority write of another.
func TestMajorities(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c", "d", "e")
		for i, r := range rs {
			w.must(w.add(r, visits, ddata.WriteMajority(), 1))
			for _, o := range rs {
				w.want(o, visits, ddata.ReadMajority(), uint64(i)+1)
			}
			w.want(r, visits, ddata.ReadLocal(), uint64(i)+1)
		}
		w.must(w.put(rs[0], ddata.WriteAll(), "milk", "tea"))
		for _, r := range rs {
			s, err := ddata.Get(w.Context(), r, cart, ddata.ReadLocal())
			elements, _ := s.Elements()
			if !slices.Equal(elements, []string{"milk", "tea"}) {
				t.Errorf("%v: got elements %v, error %v, want milk and tea", r.Node().Self(), elements, err)
			}
			if got := r.Keys(); !slices.Equal(got, []string{"cart", "visits"}) {
				t.Errorf("%v has the keys %v, want cart and visits", r.Node().Self(), got)
			}
		}
		// A local write spreads to the other nodes.
		w.must(w.add(rs[1], "other", ddata.WriteLocal(), 7))
		w.want(rs[1], "other", ddata.ReadLocal(), 7)
		w.sleep(time.Second)
		for _, r := range rs {
			w.want(r, "other", ddata.ReadLocal(), 7)
		}
		// All kinds of levels.
		for _, level := range []ddata.WriteLevel{ddata.WriteTo(3), ddata.WriteMajorityPlus(1), ddata.WriteMajority().AtLeast(4).PreferOldest()} {
			w.must(w.add(rs[2], visits, level, 1))
		}
		for _, level := range []ddata.ReadLevel{ddata.ReadFrom(5), ddata.ReadMajorityPlus(1), ddata.ReadAll().PreferOldest(), ddata.ReadMajority().AtLeast(5).RepairPeers()} {
			w.want(rs[3], visits, level, 8)
		}
	})
}

// A write that all nodes have acknowledged is visible on each of them at once, outside of the loop.
func TestWriteAllThenReadLocal(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		for i := range uint64(20) {
			w.must(w.add(rs[i%3], visits, ddata.WriteAll(), 1))
			for _, r := range rs {
				w.want(r, visits, ddata.ReadLocal(), i+1)
			}
		}
	})
}

// If only two of five nodes are reachable, a majority write fails, and the error reports the number
// of nodes that have acknowledged. The change spreads when the other nodes return.
func TestQuorumErrors(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c", "d", "e")
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 1))
		heal := w.network.Partition([]string{"a", "b"}, []string{"c", "d", "e"})
		began := time.Now()
		err := w.add(rs[0], visits, ddata.WriteMajority(), 10)
		w.wantErr(err, ddata.ErrQuorum)
		w.wantErr(err, context.DeadlineExceeded)
		e, _ := errors.AsType[*ddata.Error](err)
		if e == nil || e.Op != "update" || e.Key != "visits" || e.Answered != 2 || e.Required != 3 || e.Total != 5 {
			t.Errorf("got error %+v, want an update of visits with 2 of 3 required answers, 5 in total", e)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the request failed after %v, want at most 1 s", took)
		}
		if want := `ddata: update "visits": not enough replicas: 2 of 3 required, 5 in total, no answer from c, d, e: context deadline exceeded`; err.Error() != want {
			t.Errorf("got error %v\nwant %v", err, want)
		}
		_, err = w.get(rs[1], visits, ddata.ReadMajority())
		w.wantErr(err, ddata.ErrQuorum)
		w.want(rs[1], visits, ddata.ReadLocal(), 11)
		w.must(w.add(rs[3], visits, ddata.WriteMajority(), 100))
		err = w.add(rs[3], visits, ddata.WriteTo(6), 1000)
		w.wantErr(err, ddata.ErrTooFew)
		w.wantErr(err, ddata.ErrQuorum)
		heal()
		w.allUp(w.nodes...)
		w.converged(rs...)
		for _, r := range rs {
			w.want(r, visits, ddata.ReadLocal(), 1111)
		}
	})
}

// The errors of invalid calls.
func TestRequestErrors(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{MaxEntry: 1000}, "a", "b", "c")[0]
		ctx := w.Context()
		check := func(want error, err error, text string) {
			t.Helper()
			w.wantErr(err, want)
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v does not contain %q", err, text)
			}
		}
		_, err := ddata.Get(ctx, r, visits, ddata.ReadLocal())
		check(ddata.ErrNotFound, err, `ddata: get "visits": not found`)
		_, err = ddata.Get(ctx, r, visits, ddata.ReadAll())
		check(ddata.ErrNotFound, err, `ddata: get "visits": not found`)
		_, err = ddata.Get(ctx, r, ddata.Key[crdt.GCounter](""), ddata.ReadLocal())
		check(ddata.ErrInvalid, err, `get "": invalid: key is empty`)
		check(ddata.ErrInvalid, w.add(r, "all*", ddata.WriteLocal(), 1), "ends in a star")
		check(ddata.ErrInvalid, w.add(r, visits, ddata.WriteTo(1), 1), `update "visits": invalid: count of 1 replicas, minimum 2`)
		for _, level := range []ddata.WriteLevel{ddata.WriteLocal().AtLeast(2), ddata.WriteTo(2).AtLeast(3), ddata.WriteAll().AtLeast(2)} {
			check(ddata.ErrInvalid, w.add(r, visits, level, 1), "AtLeast requires a majority level")
			check(ddata.ErrInvalid, ddata.Delete(ctx, r, visits, level), "AtLeast requires a majority level")
		}
		for _, level := range []ddata.ReadLevel{ddata.ReadLocal().AtLeast(2), ddata.ReadFrom(2).AtLeast(3), ddata.ReadAll().AtLeast(2)} {
			_, err = ddata.Get(ctx, r, visits, level)
			check(ddata.ErrInvalid, err, "AtLeast requires a majority level")
		}
		_, err = ddata.Get(ctx, r, visits, ddata.ReadLocal().RepairPeers())
		check(ddata.ErrInvalid, err, "no peers")

		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		wrong := ddata.Key[crdt.ORSet[string]](visits)
		_, err = ddata.Get(ctx, r, wrong, ddata.ReadLocal())
		check(ddata.ErrType, err, `ddata: get "visits": type mismatch: crdt: type mismatch: got GCounter, want ORSet[string]`)
		_, err = ddata.Get(ctx, r, wrong, ddata.ReadMajority())
		check(ddata.ErrType, err, "GCounter")
		_, err = ddata.Update(ctx, r, wrong, ddata.WriteLocal(), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s, nil })
		check(ddata.ErrType, err, "GCounter")
		_, err = ddata.Update(ctx, r, ddata.Key[unknown]("unknown"), ddata.WriteLocal(), func(u unknown) (unknown, error) { return u, nil })
		check(ddata.ErrInvalid, err, "not defined")
		_, err = ddata.Update(ctx, r, ddata.Key[crdt.ORSet[unknown]]("set"), ddata.WriteLocal(), func(s crdt.ORSet[unknown]) (crdt.ORSet[unknown], error) {
			return s.Add(r.Self(), unknown{})
		})
		check(ddata.ErrModify, err, "of ddata.Config.Types")

		no := errors.New("no")
		_, err = ddata.Update(ctx, r, visits, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), 1), no })
		check(ddata.ErrModify, err, `ddata: update "visits": update function failed: no`)
		w.wantErr(err, no)
		_, err = ddata.Update(ctx, r, visits, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) { panic("oh") })
		check(ddata.ErrModify, err, `ddata: update "visits": update function failed: panic: oh`)
		if p, ok := errors.AsType[*ddata.PanicError](err); !ok || p.Value != "oh" {
			t.Errorf("got panic %v, want a *PanicError with the value oh", p)
		}
		_, err = ddata.Update(ctx, r, visits, ddata.WriteLocal(), nil)
		check(ddata.ErrModify, err, `update function failed: the function is nil`)
		err = w.put(r, ddata.WriteLocal(), strings.Repeat("x", 2000))
		check(ddata.ErrTooLarge, err, `ddata: update "cart": value too large: value of "cart" would have 20`)
		if l, ok := errors.AsType[*ddata.TooLargeError](err); !ok || l.Size < 2000 || l.Max != 1000 || l.Key != "cart" {
			t.Errorf("got error %+v, want a *TooLargeError of cart with at least 2,000 bytes and the limit 1,000", l)
		}
		w.want(r, visits, ddata.ReadLocal(), 1)

		ended, cancel := context.WithCancelCause(ctx)
		cancel(no)
		_, err = ddata.Get(ended, r, visits, ddata.ReadAll())
		check(ddata.ErrCanceled, err, "no")
		w.wantErr(err, no)
		w.wantErr(err, context.Canceled)
	})
}

// unknown is a data type that is not registered.
type unknown struct{}

func (u unknown) Merge(unknown) (unknown, error)          { return u, nil }
func (u unknown) AppendBinary(dst []byte) ([]byte, error) { return dst, nil }

// A value changed with the Self of another node is refused, because that node's changes would be
// lost.
func TestForeignSelf(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b")
		_, err := ddata.Update(w.Context(), rs[0], visits, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(rs[1].Self(), 1), nil })
		w.wantErr(err, ddata.ErrModify)
		if err == nil || !strings.Contains(err.Error(), "changed with the Self of another node") {
			t.Errorf("got error %v, want one that contains %q", err, "changed with the Self of another node")
		}
		_, err = w.get(rs[0], visits, ddata.ReadLocal())
		w.wantErr(err, ddata.ErrNotFound)
	})
}

// Nodes that hold another type refuse a write, and the error reports the refusals. If all nodes
// refuse, the write fails at once. If some nodes do not answer, the write fails at the timeout, and
// the error contains these nodes.
func TestTypeMismatchOnOtherNodes(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		heal := w.network.Partition([]string{"a"}, []string{"b", "c"})
		w.must(w.add(rs[0], "key", ddata.WriteLocal(), 1))
		for _, r := range rs[1:] {
			_, err := ddata.Update(w.Context(), r, ddata.Key[crdt.Flag]("key"), ddata.WriteLocal(), func(f crdt.Flag) (crdt.Flag, error) { return f.Enable(), nil })
			w.must(err)
		}
		heal()
		began := time.Now()
		err := w.add(rs[0], "key", ddata.WriteMajority(), 1)
		w.wantErr(err, ddata.ErrQuorum)
		w.wantErr(err, ddata.ErrType)
		if errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 500*time.Millisecond {
			t.Errorf("after %v: got error %v, want an error other than a timeout within 500 ms", time.Since(began), err)
		}
		w.network.Partition([]string{"a", "b"}, []string{"c"})
		err = w.add(rs[0], "key", ddata.WriteMajority(), 1)
		w.wantErr(err, ddata.ErrQuorum)
		w.wantErr(err, ddata.ErrType)
		w.wantErr(err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), "no answer from c: 1 other replicas have refused \"key\": the replicas hold another type: ") {
			t.Errorf("got error %v, want one that contains %q", err, "no answer from c: 1 other replicas have refused \"key\": the replicas hold another type: ")
		}
	})
}

// AwaitReplicas waits until enough nodes count in a quorum.
func TestAwaitReplicas(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.replicate(w.cluster("a")[0], ddata.Config{})
		w.must(a.AwaitReplicas(w.Context(), 1))
		w.wantErr(a.AwaitReplicas(w.Context(), 0), ddata.ErrInvalid)
		short, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		err := a.AwaitReplicas(short, 2)
		w.wantErr(err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), `wait for replicas of "ddata": got 1, want 2: `) {
			t.Errorf("got error %v, want one that contains %q", err, `wait for replicas of "ddata": got 1, want 2: `)
		}
		w.must(w.add(a, visits, ddata.WriteLocal(), 1))
		done := make(chan error)
		go func() { done <- a.AwaitReplicas(w.Context(), 2) }()
		b := w.replicate(w.start("b"), ddata.Config{})
		w.must(b.AwaitReplicas(w.Context(), 2))
		w.want(b, visits, ddata.ReadLocal(), 1) // b has fetched the existing data
		w.must(<-done)
		if n := a.ReplicaCount(); n != 2 {
			t.Errorf("%d replicas, want 2", n)
		}
		go func() { done <- a.AwaitReplicas(w.Context(), 3) }()
		synctest.Wait()
		w.must(a.Close(w.Context()))
		w.wantErr(<-done, ddata.ErrStopped)
		w.wantErr(a.AwaitReplicas(w.Context(), 1), ddata.ErrStopped)
	})
}

// An update inside the function of an update cannot begin. It fails, and the error contains the key
// of the blocking update.
func TestUpdateInUpdate(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		var inner error
		_, err := ddata.Update(w.Context(), r, visits, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) {
			_, inner = ddata.Update(context.Background(), r, "other", ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) { return c, nil })
			return c.Add(r.Self(), 1), nil
		})
		w.must(err)
		w.wantErr(inner, ddata.ErrCanceled)
		w.wantErr(inner, context.DeadlineExceeded)
		if inner == nil || !strings.Contains(inner.Error(), `request did not start within 5s: context deadline exceeded: the function of the update of "visits" has not returned`) {
			t.Errorf("got error %v, want one that contains %q", inner, `request did not start within 5s: context deadline exceeded: the function of the update of "visits" has not returned`)
		}
		synctest.Wait() // the log is written by the node
		if !strings.Contains(w.log.String(), `msg="update function blocked the replicator"`) {
			t.Error("the slow update function was not logged")
		}
		w.want(r, visits, ddata.ReadLocal(), 1)
		// The error of Close also contains the key.
		release, held := make(chan struct{}), make(chan error)
		go func() {
			_, failed := ddata.Update(w.Context(), r, visits, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) {
				<-release
				return c, nil
			})
			held <- failed
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err = r.Close(ctx)
		w.wantErr(err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), `the function of the update of "visits" has not returned`) {
			t.Errorf("got error %v, want one that contains %q", err, `the function of the update of "visits" has not returned`)
		}
		close(release)
		if failed := <-held; failed != nil {
			w.wantErr(failed, ddata.ErrStopped)
		}
		<-r.Done()
	})
}

// A deleted key is deleted permanently on all nodes.
func TestDelete(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 1))
		w.must(ddata.Delete(w.Context(), rs[1], visits, ddata.WriteAll()))
		for _, r := range rs {
			_, err := w.get(r, visits, ddata.ReadLocal())
			w.wantErr(err, ddata.ErrDeleted)
			_, err = w.get(r, visits, ddata.ReadMajority())
			w.wantErr(err, ddata.ErrDeleted)
			w.wantErr(w.add(r, visits, ddata.WriteMajority(), 1), ddata.ErrDeleted)
			w.wantErr(ddata.Delete(w.Context(), r, visits, ddata.WriteMajority()), ddata.ErrDeleted)
			if len(r.Keys()) > 0 {
				t.Errorf("deleted keys exist: %v", r.Keys())
			}
		}
	})
}

// A caller whose context is canceled returns at once; a request that has begun continues.
func TestCanceled(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		heal := w.network.Partition([]string{"a"}, []string{"b", "c"})
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(w.Context())
		done := make(chan error)
		go func() {
			_, err := ddata.Update(ctx, rs[0], visits, ddata.WriteMajority(), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(rs[0].Self(), 1), nil })
			done <- err
		}()
		synctest.Wait()
		cancel(why)
		err := <-done
		w.wantErr(err, ddata.ErrGivenUp)
		w.wantErr(err, context.Canceled)
		w.wantErr(err, why)
		w.want(rs[0], visits, ddata.ReadLocal(), 1)
		// Without a deadline in the context, Config.Timeout applies.
		began := time.Now()
		_, err = ddata.Get(w.Context(), rs[0], visits, ddata.ReadMajority())
		w.wantErr(err, ddata.ErrQuorum)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the request failed after %v, want 5 s", took)
		}
		// A request that the loop has not begun has no effect.
		release, held := make(chan struct{}), make(chan error)
		go func() {
			_, failed := ddata.Update(w.Context(), rs[0], cart, ddata.WriteLocal(), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
				<-release
				return s.Add(rs[0].Self(), "milk")
			})
			held <- failed
		}()
		synctest.Wait()
		w.wantErr(w.add(rs[0], "late", ddata.WriteLocal(), 1), ddata.ErrCanceled)
		close(release)
		w.must(<-held)
		_, err = w.get(rs[0], "late", ddata.ReadLocal())
		w.wantErr(err, ddata.ErrNotFound)
		heal()
		w.converged(rs...)
	})
}

// Replicators with different names hold different data. Nodes without the roles of a replicator do
// not see it.
func TestSeveralReplicators(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var nodes []*cluster.Node
		for _, name := range []string{"a", "b", "c", "d"} {
			nodes = append(nodes, w.start(name, func(c *cluster.Config) {
				if name > "b" {
					c.Roles = []string{"web", "eu"}
				}
			}))
		}
		w.allUp(nodes...)
		var all, web []*ddata.Replicator
		for _, n := range nodes {
			all = append(all, w.replicate(n, ddata.Config{}))
			r, err := ddata.Start(w.Context(), n, ddata.Config{Name: "web", Roles: []string{"eu", "web"}})
			if n.Self().Name > "b" {
				w.must(err)
				web = append(web, r)
				continue
			}
			w.wantErr(err, ddata.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), `Config.Roles has "eu", which is not a role of this node`) {
				t.Errorf("got error %v, want one that contains %q", err, `Config.Roles has "eu", which is not a role of this node`)
			}
		}
		_, err := ddata.Start(w.Context(), nodes[0], ddata.Config{})
		w.wantErr(err, ddata.ErrInvalid)
		synctest.Wait()
		w.must(w.add(all[0], visits, ddata.WriteAll(), 1))
		w.must(w.add(web[0], visits, ddata.WriteAll(), 10))
		for _, r := range all {
			w.want(r, visits, ddata.ReadAll(), 1)
			w.want(r, visits, ddata.ReadLocal(), 1)
			if r.ReplicaCount() != 4 {
				t.Errorf("%d replicas, want 4", r.ReplicaCount())
			}
		}
		for _, r := range web {
			w.want(r, visits, ddata.ReadLocal(), 10)
			if r.ReplicaCount() != 2 {
				t.Errorf("%d replicas with the role, want 2", r.ReplicaCount())
			}
		}
	})
}

// A restarted node is a new node and fetches the data of the others.
func TestRestart(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		for _, r := range rs {
			w.must(w.add(r, visits, ddata.WriteMajority(), 1))
		}
		n := rs[2].Node()
		w.must(w.add(rs[2], visits, ddata.WriteLocal(), 10)) // sent at the latest when the node leaves
		w.must(n.Shutdown(w.Context()))
		<-rs[2].Done()
		synctest.Wait() // all received packets are merged
		w.wantErr(rs[2].Err(), ddata.ErrStopped)
		_, err := w.get(rs[2], visits, ddata.ReadLocal())
		w.wantErr(err, ddata.ErrStopped)
		w.wantErr(w.add(rs[2], visits, ddata.WriteLocal(), 1), ddata.ErrStopped)
		w.want(rs[0], visits, ddata.ReadAll(), 13)

		again := w.start("c")
		w.allUp(rs[0].Node(), rs[1].Node(), again)
		r := w.replicate(again, ddata.Config{})
		w.want(r, visits, ddata.ReadMajority(), 13)
		w.must(w.add(r, visits, ddata.WriteAll(), 100))
		w.converged(rs[0], rs[1], r)
		w.want(rs[0], visits, ddata.ReadLocal(), 113)
		w.sleep(10 * time.Second) // a node may hold the same data before it knows that nothing is missing
		if s, err := r.Stats(w.Context()); err != nil || !s.Synced || s.Replicas != 3 || s.Protocol.Keys != 1 {
			t.Errorf("got statistics %+v, %v, want a synced node with 3 replicas and 1 key", s, err)
		}
	})
}

// A leaving node sends its pending changes.
func TestLeave(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{DeltaInterval: time.Hour, GossipInterval: time.Hour}, "a", "b")
		for range 2 { // the first change is sent at once
			w.must(w.add(rs[1], visits, ddata.WriteLocal(), 1))
		}
		w.sleep(time.Second)
		w.want(rs[0], visits, ddata.ReadLocal(), 1)
		w.must(rs[1].Node().Shutdown(w.Context()))
		synctest.Wait() // all received packets are merged
		w.want(rs[0], visits, ddata.ReadLocal(), 2)
	})
}

// A crashed node is removed, and the quorum shrinks.
func TestCrash(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{PruneInterval: 10 * time.Second, PruneAfter: 20 * time.Second}, "a", "b", "c")
		w.must(w.add(rs[2], visits, ddata.WriteAll(), 5))
		rs[2].Node().Stop()
		<-rs[2].Node().Done()
		w.allUp(rs[0].Node(), rs[1].Node())
		synctest.Wait()
		if got := rs[0].ReplicaCount(); got != 2 {
			t.Errorf("%d replicas after the crash, want 2", got)
		}
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 1))
		w.sleep(2 * time.Minute) // the count of the removed node is moved to another node
		for _, r := range rs[:2] {
			w.want(r, visits, ddata.ReadLocal(), 6)
			c, err := ddata.Get(w.Context(), r, visits, ddata.ReadLocal())
			w.must(err)
			if slices.Contains(c.ModifiedBy(), rs[2].Node().Self()) {
				t.Errorf("%v still has the count of the removed node", r.Node().Self())
			}
		}
	})
}

// A request runs on the goroutine of its caller. Only a request that needs other nodes runs in the
// loop while several requests wait for nodes, so that they share packets.
func TestRequestsShareTurns(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{Timeout: time.Second}, "a", "b", "c")[0]
		w.network.Partition([]string{"a"}, []string{"b", "c"})
		inline := func(level ddata.WriteLevel) bool {
			stack := ""
			ddata.UpdateAsync(w.Context(), r, visits, level, func(c crdt.GCounter) (crdt.GCounter, error) {
				stack = string(debug.Stack())
				return c.Add(r.Self(), 1), nil
			}, func(crdt.GCounter, error) {})
			synctest.Wait()
			return strings.Contains(stack, ".runInline(")
		}
		want := func(level ddata.WriteLevel, want bool) {
			t.Helper()
			if got := inline(level); got != want {
				t.Errorf("a request at %v ran on the goroutine of its caller: %t, want %t", level, got, want)
			}
		}
		for range ddata.ShareAt {
			want(ddata.WriteMajority(), true)
		}
		want(ddata.WriteMajority(), false)
		want(ddata.WriteLocal(), true)
		w.sleep(2 * time.Second) // the requests have timed out
		want(ddata.WriteMajority(), true)
		w.want(r, visits, ddata.ReadLocal(), ddata.ShareAt+3)
	})
}

// A panic of the replicator answers the request that runs on the goroutine of its caller, and all
// requests that wait for other nodes.
func TestPanicAnswersRequests(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a", "b")[0]
		w.network.Partition([]string{"a"}, []string{"b"})
		waiting := make(chan error, 1)
		go func() { waiting <- w.add(r, visits, ddata.WriteAll(), 1) }()
		synctest.Wait()
		r.Break()
		w.wantErr(w.add(r, visits, ddata.WriteLocal(), 1), ddata.ErrStopped)
		w.wantErr(<-waiting, ddata.ErrStopped)
		<-r.Done()
	})
}

// Requests that are open when the replicator is closed return an error.
func TestCloseInFlight(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		w.network.Partition([]string{"a"}, []string{"b", "c"})
		errs := make(chan error)
		for range 10 {
			go func() { errs <- w.add(rs[0], visits, ddata.WriteMajority(), 1) }()
		}
		var seen []ddata.Change
		over := make(chan struct{})
		go func() {
			defer close(over)
			seen = slices.Collect(rs[0].Subscribe(w.Context(), ddata.Prefix("")))
		}()
		synctest.Wait()
		w.must(rs[0].Flush(w.Context()))
		w.must(rs[0].Close(w.Context()))
		w.must(rs[0].Close(w.Context()))
		for range 10 {
			w.wantErr(<-errs, ddata.ErrStopped)
		}
		<-over
		if len(seen) != 1 {
			t.Errorf("got changes %v, want 1", seen)
		}
		w.wantErr(rs[0].Flush(w.Context()), ddata.ErrStopped)
		_, err := rs[0].Stats(w.Context())
		w.wantErr(err, ddata.ErrStopped)
		if got := slices.Collect(rs[0].Subscribe(w.Context(), visits.Any())); len(got) > 0 {
			t.Errorf("got changes %v after Close, want none", got)
		}
		// A replicator with another name can be started.
		r := w.replicate(rs[0].Node(), ddata.Config{Name: "other"})
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		w.want(r, visits, ddata.ReadLocal(), 1)
	})
}

// Other nodes recognize a node's changes by their numbers. A second replicator of the same name
// would restart the numbers, and acknowledged changes would be lost. Start therefore refuses it. A
// new incarnation of the node is accepted.
func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b")
		w.must(w.add(rs[1], visits, ddata.WriteAll(), 5))
		w.must(rs[1].Close(w.Context()))
		n := rs[1].Node()
		_, err := ddata.Start(w.Context(), n, ddata.Config{})
		w.wantErr(err, ddata.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), `"ddata", which belongs to a replicator that has ended on this node (the replicator was closed)`) || !strings.Contains(err.Error(), "restart the node") {
			t.Errorf("got error %v, want one that contains %q", err, `"ddata", which belongs to a replicator that has ended on this node (the replicator was closed)`)
		}
		w.must(n.Shutdown(w.Context()))
		_, err = ddata.Start(w.Context(), n, ddata.Config{})
		w.wantErr(err, ddata.ErrInvalid)

		again := w.start("b")
		w.allUp(rs[0].Node(), again)
		r := w.replicate(again, ddata.Config{})
		w.must(w.add(r, visits, ddata.WriteAll(), 3))
		w.want(rs[0], visits, ddata.ReadLocal(), 8)
	})
}

// panickingHandler is a log handler that panics.
type panickingHandler struct{ lines *atomic.Int64 }

func (panickingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h panickingHandler) Handle(context.Context, slog.Record) error {
	h.lines.Add(1)
	panic("oh")
}
func (h panickingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h panickingHandler) WithGroup(string) slog.Handler      { return h }

// A panic of an update function, of a log handler or of an observer fails neither the replicator nor
// later requests.
func TestPanicsDoNotStopReplication(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b")
		var lines atomic.Int64
		r := w.replicate(nodes[0], ddata.Config{
			MaxEntry: 4096, Logger: slog.New(panickingHandler{&lines}), Observer: ddata.Observer{Request: func(ddata.RequestInfo) { panic("oh") }},
		})
		other := w.replicate(nodes[1], ddata.Config{MaxEntry: 4096})
		_, err := ddata.Update(w.Context(), r, visits, ddata.WriteAll(), func(crdt.GCounter) (crdt.GCounter, error) { panic("oh") })
		w.wantErr(err, ddata.ErrModify)
		before := lines.Load()
		_, err = ddata.Update(w.Context(), r, cart, ddata.WriteAll(), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			return s.Add(r.Self(), strings.Repeat("x", 3500)) // logged: it approaches MaxEntry
		})
		w.must(err)
		if lines.Load() == before {
			t.Error("the replicator has logged nothing")
		}
		w.must(w.add(r, visits, ddata.WriteAll(), 1))
		w.want(other, visits, ddata.ReadLocal(), 1)
		w.must(r.Err())
	})
}

// A function that exits its goroutine ends the replicator, but not the node.
func TestGoexit(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{}, "a")[0]
		go func() {
			_, _ = ddata.Update(w.Context(), r, visits, ddata.WriteLocal(), func(crdt.GCounter) (crdt.GCounter, error) {
				runtime.Goexit()
				return crdt.GCounter{}, nil
			})
		}()
		<-r.Done()
		w.wantErr(w.add(r, visits, ddata.WriteLocal(), 1), ddata.ErrStopped)
		if r.Node().Err() != nil {
			t.Error("the node has ended")
		}
	})
}

// Start refuses invalid configurations.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		n := w.cluster("a")[0]
		for want, cfg := range map[string]ddata.Config{
			"Config.Name":                    {Name: "a/b"},
			"Config.Opener is missing":       {Durable: []string{"a"}},
			"Config.WriteBehind is -1ns":     {WriteBehind: -1},
			"Config.StatsInterval is -1ns":   {StatsInterval: -1},
			"Config.GossipInterval is -1ns":  {GossipInterval: -1},
			"Config.DurablePruneAfter is -1": {DurablePruneAfter: -1},
			"Config.MaxEntry is 2097152, it": {MaxEntry: 2 << 20},
			"Config.Expire: ":                {Expire: map[string]time.Duration{"a": 1}},
		} {
			_, err := ddata.Start(w.Context(), n, cfg)
			w.wantErr(err, ddata.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not contain %q", err, want)
			}
		}
		_, err := ddata.Start(w.Context(), n, ddata.Config{Name: "a/b", Roles: []string{"no"}, Timeout: -1, Durable: []string{""}})
		for _, want := range []string{"Config.Name", "Config.Roles", "Config.Timeout", "Config.Durable: key is empty", "Config.Opener"} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v does not contain %q", err, want)
			}
		}
		_, err = ddata.Start(w.Context(), nil, ddata.Config{})
		w.wantErr(err, ddata.ErrInvalid)
		r := w.replicate(n, ddata.Config{}) // after failed attempts, Start succeeds
		n.Stop()
		<-n.Done()
		<-r.Done()
		w.wantErr(r.Err(), ddata.ErrStopped)
		w.wantErr(r.Err(), cluster.ErrStopped)
		for _, name := range []string{"", "other"} {
			_, err := ddata.Start(w.Context(), n, ddata.Config{Name: name})
			w.wantErr(err, cluster.ErrShuttingDown)
		}
	})
}
