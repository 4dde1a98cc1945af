// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/transport"
)

// disks are in-memory stores that outlive their replicators, with injected faults.
type disks struct {
	mu     sync.Mutex
	data   map[durable.ID]map[string][]byte
	calls  int
	fail   error         // the result of Write
	hold   chan struct{} // Write waits until hold is closed
	broken error         // the error at the end of Load
	closed int

	loading chan struct{} // Load waits until loading is closed
}

// Open implements durable.Opener.
func (d *disks) Open(_ context.Context, id durable.ID) (durable.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		d.data = map[durable.ID]map[string][]byte{}
	}
	if d.data[id] == nil {
		d.data[id] = map[string][]byte{}
	}
	return &durableWriter{d, d.data[id]}, nil
}

func (d *disks) set(fail error, hold chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.hold = fail, hold
}

func (d *disks) keys() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.data[durable.ID{Node: "a", Replicator: "ddata"}])
}

func (d *disks) writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

type durableWriter struct {
	*disks

	by map[string][]byte
}

// Load implements durable.Store.
func (d *durableWriter) Load(context.Context) iter.Seq2[durable.Record, error] {
	return func(yield func(durable.Record, error) bool) {
		if d.loading != nil {
			<-d.loading
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for key, data := range d.by {
			if !yield(durable.Record{Key: key, Data: data}, nil) {
				return
			}
		}
		if d.broken != nil {
			yield(durable.Record{}, d.broken)
		}
	}
}

// Write implements durable.Store.
func (d *durableWriter) Write(ctx context.Context, records []durable.Record) error {
	d.mu.Lock()
	d.calls++
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(d.fail, errPanic) {
		panic(d.fail)
	}
	if d.fail != nil {
		return d.fail
	}
	for _, r := range records {
		if d.by[r.Key] = r.Data; len(r.Data) == 0 {
			delete(d.by, r.Key)
		}
	}
	return nil
}

// Close implements durable.Store.
func (d *durableWriter) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed++
	return nil
}

var (
	errDisk  = errors.New("disk full")
	errPanic = errors.New("panic in Write")
)

// A panic of a store fails the write like an error, with and without write-behind.
func TestDiskPanics(t *testing.T) {
	t.Parallel()
	for _, behind := range []time.Duration{0, time.Second} {
		t.Run(behind.String(), func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				d := &disks{fail: errPanic}
				r := w.replicate(w.cluster("a")[0], ddata.Config{Durable: []string{"*"}, Opener: d, WriteBehind: behind})
				err := w.add(r, visits, ddata.WriteLocal(), 1)
				if behind == 0 {
					w.wantErr(err, ddata.ErrStore)
				}
				w.sleep(5 * time.Second)
				d.set(nil, nil)
				w.must(w.add(r, visits, ddata.WriteLocal(), 10))
				w.want(r, visits, ddata.ReadLocal(), 11)
				w.sleep(5 * time.Second)
				if d.keys() != 1 {
					t.Errorf("the disk holds %d keys, want 1", d.keys())
				}
			})
		})
	}
}

// After all nodes have crashed, durable keys and their deletions are restored. Other keys are lost.
func TestDurable(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{}
		cfg := ddata.Config{Durable: []string{"durable-*"}, Opener: d}
		rs := w.replicators(cfg, "a", "b", "c")
		w.must(w.add(rs[0], "durable-1", ddata.WriteMajority(), 1))
		w.must(w.add(rs[1], "durable-1", ddata.WriteAll(), 10))
		w.must(w.add(rs[1], "durable-2", ddata.WriteAll(), 1))
		w.must(ddata.Delete(w.Context(), rs[2], ddata.Key[crdt.GCounter]("durable-2"), ddata.WriteAll()))
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 1))
		for _, r := range rs {
			r.Node().Stop()
		}
		for _, r := range rs {
			<-r.Done()
			<-r.Node().Done()
		}
		if d.closed != 3 {
			t.Errorf("%d stores were closed, want 3", d.closed)
		}
		again := w.replicators(cfg, "a", "b", "c")
		for _, r := range again {
			w.want(r, "durable-1", ddata.ReadLocal(), 11)
			_, err := w.get(r, "durable-2", ddata.ReadLocal())
			w.wantErr(err, ddata.ErrDeleted)
			_, err = w.get(r, visits, ddata.ReadLocal())
			w.wantErr(err, ddata.ErrNotFound)
		}
		w.must(w.add(again[0], "durable-1", ddata.WriteMajority(), 100))
		w.want(again[1], "durable-1", ddata.ReadMajority(), 111)
	})
}

// If a disk fails, on this node or on too many other nodes, requests that wait for the disk fail.
// The change remains and spreads.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		good, bad := &disks{}, &disks{fail: errDisk}
		nodes := w.cluster("a", "b", "c")
		rs := []*ddata.Replicator{
			w.replicate(nodes[0], ddata.Config{Durable: []string{"*"}, Opener: good}),
			w.replicate(nodes[1], ddata.Config{Durable: []string{"*"}, Opener: bad}),
			w.replicate(nodes[2], ddata.Config{Durable: []string{"*"}, Opener: bad}),
		}
		synctest.Wait()
		err := w.add(rs[1], visits, ddata.WriteLocal(), 1)
		w.wantErr(err, ddata.ErrStore)
		w.wantErr(err, errDisk)
		err = w.add(rs[0], visits, ddata.WriteMajority(), 1)
		w.wantErr(err, ddata.ErrStore)
		if e, _ := errors.AsType[*ddata.Error](err); e == nil || e.Answered != 1 || e.Required != 2 {
			t.Errorf("got error %+v, want 1 of 2 replicas", e)
		}
		w.must(w.add(rs[0], visits, ddata.WriteLocal(), 1))
		bad.set(nil, nil)
		w.must(w.add(rs[1], visits, ddata.WriteMajority(), 10))
		w.converged(rs...)
		w.want(rs[2], visits, ddata.ReadLocal(), 13)
		s, err := rs[1].Stats(w.Context())
		if err != nil || s.DiskErrors == 0 || s.DiskWrites <= s.DiskErrors {
			t.Errorf("got statistics %+v, %v, want DiskErrors > 0 and DiskWrites > DiskErrors", s, err)
		}
		synctest.Wait() // the node writes its log in another goroutine
		if !strings.Contains(w.log.String(), "write of durable keys failed") {
			t.Error("the failed write was not logged")
		}
	})
}

// A disk that does not respond blocks only requests that wait for it. Records that arrive during a
// call are combined into one call.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{hold: make(chan struct{})}
		r := w.replicate(w.cluster("a")[0], ddata.Config{Durable: []string{"durable-*"}, Opener: d})
		w.sleep(time.Second)
		began := time.Now()
		err := w.add(r, "durable-1", ddata.WriteLocal(), 1)
		w.wantErr(err, ddata.ErrStore)
		w.wantErr(err, context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the request failed after %v, want 1 s", took)
		}
		began = time.Now()
		err = ddata.Delete(w.Context(), r, ddata.Key[crdt.GCounter]("durable-gone"), ddata.WriteLocal())
		w.wantErr(err, ddata.ErrStore)
		w.wantErr(err, context.DeadlineExceeded)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("without a deadline, the request failed after %v, want 5 s", took)
		}
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		done := make(chan error)
		for i := range 20 {
			go func() {
				_, err := ddata.Update(w.Context(), r, ddata.Key[crdt.GCounter](fmt.Sprintf("durable-%d", i%5)), ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) {
					return c.Add(r.Self(), 1), nil
				})
				done <- err
			}()
		}
		synctest.Wait()
		close(d.hold)
		for range 20 {
			w.must(<-done)
		}
		if got := d.writes(); got != 2 {
			t.Errorf("got %d calls of Write, want 2", got)
		}
		// A disk that never responds does not block Close.
		d.set(nil, make(chan struct{}))
		go func() { done <- w.add(r, "durable-1", ddata.WriteLocal(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.wantErr(r.Close(ctx), context.DeadlineExceeded)
		w.wantErr(<-done, ddata.ErrStopped)
		<-r.Done()
	})
}

// With write-behind, requests do not wait for the disk. Many changes of a key are one record.
// Failed writes are retried. Close writes the remaining records.
func TestWriteBehind(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{}
		cfg := ddata.Config{Durable: []string{"*"}, Opener: d, WriteBehind: time.Minute}
		r := w.replicate(w.cluster("a")[0], cfg)
		w.sleep(time.Second)
		for range 100 {
			w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		}
		if d.writes() != 0 {
			t.Error("the record was written at once")
		}
		d.set(errDisk, nil)
		w.sleep(61 * time.Second)
		if d.writes() != 1 || d.keys() != 0 {
			t.Errorf("with a failing disk: %d calls of Write, %d keys, want 1 and 0", d.writes(), d.keys())
		}
		d.set(nil, nil)
		w.sleep(61 * time.Second)
		if d.writes() != 2 || d.keys() != 1 {
			t.Errorf("after the retry: %d calls of Write, %d keys, want 2 and 1", d.writes(), d.keys())
		}
		w.must(w.add(r, "other", ddata.WriteLocal(), 1))
		w.must(r.Close(w.Context()))
		if d.writes() != 3 || d.keys() != 2 {
			t.Errorf("after Close: %d calls of Write, %d keys, want 3 and 2", d.writes(), d.keys())
		}
		r.Node().Stop()
		<-r.Node().Done()
		r = w.replicate(w.cluster("a")[0], cfg)
		w.want(r, visits, ddata.ReadLocal(), 100)
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		d.set(errDisk, nil)
		w.wantErr(r.Close(w.Context()), errDisk)
	})
}

// Without write-behind, Close returns the error of the last write.
func TestCloseReportsTheDisk(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{}
		r := w.replicate(w.cluster("a")[0], ddata.Config{Durable: []string{"*"}, Opener: d})
		d.set(errDisk, nil)
		w.wantErr(w.add(r, visits, ddata.WriteLocal(), 1), ddata.ErrStore)
		w.wantErr(r.Close(w.Context()), errDisk)
	})
}

// While a replicator loads its store, packets for it do not delay other messages of their senders.
func TestPacketsDuringLoad(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b")
		d := &disks{loading: make(chan struct{})}
		started := make(chan error, 1)
		go func() {
			_, err := ddata.Start(w.Context(), nodes[0], ddata.Config{Durable: []string{"*"}, Opener: d})
			started <- err
		}()
		synctest.Wait()
		arrived := make(chan struct{})
		nodes[0].Transport().Handle(transport.FirstUserKind, func(context.Context, transport.Message) { close(arrived) })
		packet := append([]byte{1, byte(len(ddata.DefaultName))}, ddata.DefaultName...)
		packet = append(packet, make([]byte, 900<<10)...)
		for range 20 { // more than the packets that may wait for a replicator
			w.must(nodes[1].Transport().Send(nodes[0].Self(), transport.Data, transport.FirstReplicationKind, packet))
			synctest.Wait()
		}
		w.must(nodes[1].Transport().Send(nodes[0].Self(), transport.Data, transport.FirstUserKind, nil))
		synctest.Wait()
		select {
		case <-arrived:
		default:
			t.Error("a message of another kind waits for the load")
		}
		close(d.loading)
		w.must(<-started)
	})
}

// A replicator that cannot load a record does not start.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		d := &disks{broken: errDisk}
		n := w.cluster("a")[0]
		cfg := ddata.Config{Durable: []string{"*"}, Opener: d}
		_, err := ddata.Start(w.Context(), n, cfg)
		w.wantErr(err, errDisk)
		d.broken = nil
		d.data[durable.ID{Node: "a", Replicator: "ddata"}]["visits"] = []byte("no record")
		_, err = ddata.Start(w.Context(), n, cfg)
		if err == nil || !strings.Contains(err.Error(), `load "visits"`) {
			t.Errorf("got error %v, want one that contains %q", err, `load "visits"`)
		}
		if d.closed != 2 {
			t.Errorf("%d stores were closed, want 2", d.closed)
		}
		delete(d.data[durable.ID{Node: "a", Replicator: "ddata"}], "visits")
		w.must(w.replicate(n, cfg).Close(w.Context()))
	})
}
