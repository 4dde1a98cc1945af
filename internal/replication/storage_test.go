// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	disk "github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// restart restarts a node with the content of its disk.
func (h *host) restart(cfg replication.Config) *host {
	h.w.tb.Helper()
	w := newWorld(h.w.tb, 9, cfg, 0)
	w.now = h.w.now
	return w.start(h.self.Name, h.disk)
}

// A record that could not be written is written again without another request. This applies to
// changes of this node and of other nodes. Without the retry, a restart would undo a deletion.
func TestFailedStoreIsRetried(t *testing.T) {
	t.Parallel()
	w := durable(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for _, key := range []string{"kept", "shard-1", "shard-2"} {
		w.wait(a, a.add(key, all, 7))
	}
	a.broken, b.broken = errDisk, errDisk
	if r := w.wait(a, a.del("kept", all)); r.Outcome != replication.StoreFailed {
		t.Errorf("delete: %+v, want StoreFailed", r)
	}
	a.add("shard-1", local, 1)
	w.run(10 * time.Second)
	a.broken, b.broken = nil, nil
	w.run(5 * time.Second)
	for _, h := range w.hosts {
		later := h.restart(w.cfg)
		if later.show("kept") != "deleted" || later.show("shard-1") != "8" || later.show("shard-2") != "7" {
			t.Errorf("%v: got %s, %s, %s after the restart, want deleted, 8 and 7", h.self, later.show("kept"), later.show("shard-1"), later.show("shard-2"))
		}
	}
	if n := a.m.Counters().Storing; n != 0 || a.m.Next() == w.now {
		t.Errorf("%d records wait, want 0", n)
	}
}

// A failed record is not written again if the key has a newer record. Many failed records are
// retried in portions.
func TestRetryOfFailedRecords(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	h := w.hosts[0]
	h.held = true
	h.add("kept", local, 1)
	first := h.storing[0].Nr
	h.add("kept", local, 1)
	h.step(replication.Stored{Nrs: []uint64{first}, Err: errDisk})
	h.storing = nil
	w.run(10 * time.Second)
	if len(h.storing) != 0 {
		t.Errorf("%d records are written again while a newer record is pending, want 0", len(h.storing))
	}
	h.held, h.broken = false, errDisk
	for i := range 3_000 {
		h.add(fmt.Sprint("shard-", i), local, 1)
	}
	h.sync()
	h.broken, h.held = nil, true
	w.run(1500 * time.Millisecond)
	if n := len(h.storing); n == 0 || n > 1_100 {
		t.Errorf("%d records are retried at a time, want 1 to 1,100", n)
	}
	h.held = false
	w.run(5 * time.Second)
	if n := len(h.disk); n != 3_000 {
		t.Errorf("%d records are on disk, want 3,000", n)
	}
}

// A repeated Delete is executed at its level, because the first one may have failed.
func TestRepeatedDelete(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(a, a.add("kept", all, 1))
	w.cut = func(x, y *host) bool { return x != y }
	if r := w.wait(a, a.del("kept", majority)); r.Outcome != replication.TimedOut {
		t.Errorf("partitioned: got %+v, want TimedOut", r)
	}
	if r := w.wait(a, a.del("kept", majority)); r.Outcome != replication.TimedOut {
		t.Errorf("partitioned, second Delete: got %+v, want TimedOut", r)
	}
	w.cut = func(x, y *host) bool { return false }
	a.broken = errDisk
	if r := w.wait(a, a.del("kept", local)); r.Outcome != replication.StoreFailed {
		t.Errorf("failing disk: got %+v, want StoreFailed", r)
	}
	a.broken = nil
	if r := w.wait(a, a.del("kept", local)); r.Outcome != replication.Deleted {
		t.Errorf("local Delete: got %+v, want Deleted", r)
	}
	if r := w.wait(a, a.del("kept", majority)); r.Outcome != replication.Deleted || r.Answered < 2 {
		t.Errorf("Delete at a majority: got %+v, want Deleted and at least 2 answers", r)
	}
	if b.show("kept") != "deleted" && w.hosts[2].show("kept") != "deleted" {
		t.Error("no other node has received the deletion")
	}
	if r := w.wait(a, a.add("kept", majority, 1)); r.Outcome != replication.Deleted {
		t.Errorf("update: %+v, want Deleted", r)
	}
}

// A loaded key stays durable if Config.Durable is narrowed, so that its deletion reaches the disk.
func TestNarrowedDurable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}}, 1)
	h := w.hosts[0]
	w.wait(h, h.add("visits", local, 7))
	narrow := replication.Config{Durable: []string{"other*"}}
	h = h.restart(narrow)
	if r := h.w.wait(h, h.del("visits", local)); r.Outcome != replication.Done {
		t.Errorf("delete: %+v, want Done", r)
	}
	if h = h.restart(narrow); h.show("visits") != "deleted" {
		t.Errorf("after the restart, the deleted key has %s, want deleted", h.show("visits"))
	}
	if h.add("visit", local, 1); len(h.storing) != 0 {
		t.Error("a key that was not loaded and does not match is durable")
	}
}

// A key that has expired while a node was down does not return from the disk of that node. A key
// that was only read is kept.
func TestExpiredOnDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}, Expire: map[string]time.Duration{"s*": time.Minute}}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(a, a.add("session", all, 7))
	w.wait(a, a.add("used", all, 7))
	w.wait(a, a.add("stays", all, 7))
	w.wait(a, a.del("stays", all))
	for range 4 {
		w.run(20 * time.Second)
		b.get("session", local)
	}
	w.run(time.Second)
	if later := b.restart(w.cfg); later.show("session") != "7" || later.show("used") != "7" || later.show("stays") != "-" {
		t.Errorf("after the restart: got %s, %s, %s, want 7, 7 and -", later.show("session"), later.show("used"), later.show("stays"))
	}
	b.ended = true
	w.set(b.self, identity.Removed)
	w.sendMembers()
	w.run(time.Hour)
	again := w.startAt("n2", b.disk)
	w.set(again.self, identity.Up)
	w.sendMembers()
	if again.show("session") != "-" {
		t.Errorf("after the restart, the expired key has %s, want no value", again.show("session"))
	}
	w.run(10 * time.Second)
	if a.show("session") != "-" || again.show("session") != "-" || again.show("used") != "7" {
		t.Errorf("after 10 s: got %s, %s, %s, want -, - and 7", a.show("session"), again.show("session"), again.show("used"))
	}
	if got := sortedKeys(again.disk); len(got) != 1 || got[0] != "used" {
		t.Errorf("on disk: got %v, want [used]", got)
	}
	if got := sortedKeys(a.disk); len(got) != 1 || got[0] != "used" {
		t.Errorf("on the other disk: got %v, want [used]", got)
	}
}

// startAt is start for a node that starts at the present simulated time.
func (w *world) startAt(name string, disk map[string][]byte) *host {
	w.tb.Helper()
	h := w.start(name, nil)
	h.disk = disk
	cfg := w.cfg
	cfg.Name, cfg.Self, cfg.Started, cfg.Rand = "r", h.actor, started, w.rnd
	h.m = must(replication.New(cfg))
	h.step(replication.SetClock{Time: started.Add(w.now)})
	for _, key := range sortedKeys(disk) {
		h.step(replication.Load{Key: key, Data: disk[key]})
	}
	h.step(replication.Loaded{})
	return h
}

// Records without a time of use count as used when they are loaded.
func TestRecordsWithoutUse(t *testing.T) {
	t.Parallel()
	v := must(must((*crdt.Types)(nil).Value(crdt.Flag{}.Enable())).AppendBinary(nil))
	old := replication.AppendRecord(nil, replication.Record{Value: v})
	if n := len(replication.AppendRecord(nil, replication.Record{Value: v, Used: 5})); n != len(old)+1 {
		t.Errorf("a record has %d bytes with the time of use and %d without, want one more byte", n, len(old))
	}
	if _, err := replication.DecodeRecord(append(old, 0)); err == nil {
		t.Error("DecodeRecord accepted a time of 0")
	}
	if _, err := replication.DecodeRecord(append(old, 5, 0)); err == nil {
		t.Error("DecodeRecord accepted trailing bytes")
	}
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}, Expire: map[string]time.Duration{"*": time.Minute}}, 0)
	w.now = time.Hour
	h := w.startAt("n1", map[string][]byte{"flag": old})
	w.set(h.self, identity.Up)
	w.sendMembers()
	if w.run(30 * time.Second); h.show("flag") == "-" {
		t.Error("the key expired at once")
	}
	if w.run(2 * time.Minute); h.show("flag") != "-" {
		t.Error("the key did not expire")
	}
}

// A write of a node whose clock is late is accepted, because it is acknowledged.
func TestExpiryWithClocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"*": 10 * time.Second}}, 3)
	a := w.hosts[0]
	w.run(time.Second)
	a.step(replication.SetClock{Time: started.Add(w.now - time.Minute)})
	if r := w.wait(a, a.add("s", all, 1)); r.Outcome != replication.Done {
		t.Errorf("got %+v, want Done", r)
	}
	for _, h := range w.hosts {
		if h.show("s") != "1" {
			t.Errorf("%v has acknowledged the write and has %s, want 1", h.self, h.show("s"))
		}
	}
}

// Very long durations do not overflow.
func TestLongDurations(t *testing.T) {
	t.Parallel()
	never := time.Duration(math.MaxInt64)
	w := newWorld(t, 1, replication.Config{
		Expire: map[string]time.Duration{"s*": time.Minute, "special": never}, PruneInterval: never, PruneAfter: never, MarkerTTL: never, NotifyInterval: never, Timeout: never,
	}, 2)
	a := w.hosts[0]
	r := a.request("special", all)
	r.Timeout = never
	a.step(replication.Update{Request: r, Modify: modify(func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(a.actor, 1), nil })})
	if got := w.wait(a, r.ID); got.Outcome != replication.Done {
		t.Errorf("got %+v, want Done", got)
	}
	w.run(time.Hour)
	for _, h := range w.hosts {
		if h.show("special") != "1" {
			t.Errorf("%v has %s, want 1", h.self, h.show("special"))
		}
	}
}

// A leaving node sends its large values to two other nodes without a request. A node that stays sends large values only on request.
func TestFlushSendsLargeValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 4)
	a := w.hosts[0]
	w.run(time.Second) // all nodes have the data
	a.write("large", local, strings.Repeat("x", 100<<10))
	a.write("two", local, strings.Repeat("y", 100<<10))
	w.run(time.Second)
	have := func(key string) (n int) {
		for _, h := range w.hosts[1:] {
			if h.show(key) != "-" {
				n++
			}
		}
		return n
	}
	if have("large") != 0 {
		t.Fatal("the large value was sent unrequested")
	}
	a.step(replication.Flush{})
	w.run(time.Second)
	if have("large") != 2 || have("two") != 2 {
		t.Errorf("%d and %d other nodes have the values, want 2 and 2", have("large"), have("two"))
	}
	sent := a.m.Counters().Sent[replication.KindGossip]
	a.step(replication.Flush{})
	if n := a.m.Counters().Sent[replication.KindGossip]; n != sent {
		t.Error("a second Flush sent the value again")
	}
}

// A leaving node also sends large values if more changes are pending than fit in one step.
func TestFlushSendsLargeValuesAfterManyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	a := w.hosts[0]
	w.run(time.Second)
	for i := range 600 {
		a.add(fmt.Sprint("counter-", i), local, 1)
	}
	a.write("large", local, strings.Repeat("x", 100<<10))
	a.step(replication.Flush{})
	w.run(time.Second)
	for _, h := range w.hosts[1:] {
		if h.show("large") == "-" || h.show("counter-599") != "1" {
			t.Errorf("%v lacks the large value or the last counter", h.self)
		}
	}
}

// If a replica has no room for another key, the writer sends the request to other nodes. The full
// replica continues with its existing keys.
func TestNoRoomOnOtherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 0)
	w.cfg.Durable = []string{"kept"}
	a := w.start("n1", nil)
	w.cfg.MaxKeys = 1
	b, c := w.start("n2", nil), w.start("n3", nil)
	w.cfg.MaxKeys = 0
	d := w.start("n4", nil)
	for _, h := range w.hosts[:3] {
		w.set(h.self, identity.Up)
	}
	w.sendMembers()
	w.wait(a, a.add("old", all, 1))
	for _, key := range []string{"kept", "new"} {
		for range 2 { // the whole value, and a delta
			r := w.wait(a, a.add(key, majority, 1))
			if r.Outcome != replication.TimedOut || !errors.Is(r.Err, replication.ErrFull) || errors.Is(r.Err, replication.ErrType) || r.Answered != 1 || len(r.Silent) != 0 {
				t.Errorf("%s: got %+v, want TimedOut with ErrFull and 1 answer", key, r)
			}
		}
	}
	if b.show("kept") != "-" || c.show("new") != "-" || len(b.disk)+len(c.disk) != 0 {
		t.Errorf("the nodes have %s, %s, want no value on either node", b.show("kept"), c.show("new"))
	}
	if r := w.wait(a, a.add("old", all, 1)); r.Outcome != replication.Done || b.show("old") != "2" {
		t.Errorf("an update of an existing key: got %+v, want Done and 2", r)
	}
	w.set(d.self, identity.Up)
	w.sendMembers()
	if r := w.wait(a, a.add("kept", count(2), 1)); r.Outcome != replication.Done || d.show("kept") != "3" {
		t.Errorf("with a node that has room: got %+v, want Done and 3", r)
	}
	if !slices.ContainsFunc(b.notes, func(n replication.Note) bool {
		return n.Kind == replication.NoteFull && n.Key == "kept" && n.Node == a.self
	}) {
		t.Errorf("got notes %v, want one about the lack of room", b.notes)
	}
}

var errDisk = errors.New("the disk is full")

func durable(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, 1, replication.Config{Durable: []string{"kept", "shard-*"}}, n)
}

// A durable key is on disk before its update is answered or acknowledged; other keys are not
// stored.
func TestStoredBeforeAcknowledged(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	for _, h := range w.hosts {
		h.held = true
	}
	a := w.hosts[0]
	one, most, read := a.add("shard-1", local, 1), a.add("shard-2", majority, 1), a.add("other", majority, 1)
	w.run(time.Second)
	if len(a.replies) != 1 || a.replies[read].Outcome != replication.Done {
		t.Errorf("the replies before the record was stored are %v, want one to the read", a.replies)
	}
	a.held = false
	w.run(time.Second)
	if a.replies[one].Outcome != replication.Done || len(a.replies) != 2 {
		t.Errorf("after the local store: got %v, want two replies, and Done for shard-1", a.replies)
	}
	w.hosts[1].held, w.hosts[2].held, a.held = false, false, true
	here := a.add("shard-2", majority, 1)
	w.run(500 * time.Millisecond)
	if r, found := a.replies[here]; found {
		t.Errorf("answered before the record is stored on this node: %+v", r)
	}
	a.held = false
	if r := w.wait(a, here); r.Outcome != replication.Done {
		t.Errorf("after the local store: got %+v, want Done", r)
	}
	if r := w.wait(a, most); r.Outcome != replication.Done {
		t.Errorf("after all stores: got %+v, want Done", r)
	}
	w.run(time.Second)
	for _, h := range w.hosts {
		if got := sortedKeys(h.disk); !slices.Equal(got, []string{"shard-1", "shard-2"}) {
			t.Errorf("%v has stored %v, want shard-1 and shard-2", h.self, got)
		}
	}
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	a := w.hosts[0]
	a.broken = errDisk
	for _, l := range []replication.Level{local, majority} {
		if r := w.wait(a, a.add("kept", l, 1)); r.Outcome != replication.StoreFailed || !errors.Is(r.Err, errDisk) {
			t.Errorf("%v: %+v, want StoreFailed with the error of the disk", l.Kind, r)
		}
		if r := w.wait(a, a.del("shard-"+l.Kind.String(), l)); r.Outcome != replication.StoreFailed {
			t.Errorf("delete, %v: %+v, want StoreFailed", l.Kind, r)
		}
	}
	// The change remains in memory and spreads.
	w.run(5 * time.Second)
	if got := w.hosts[1].show("kept"); got != "2" {
		t.Errorf("another node has %s, want 2", got)
	}
	// A majority also needs disks of the other nodes.
	a.broken, w.hosts[1].broken, w.hosts[2].broken = nil, errDisk, errDisk
	if r := w.wait(a, a.add("kept", majority, 1)); r.Outcome != replication.StoreFailed || r.Answered != 1 {
		t.Errorf("failing disks of the other nodes: got %+v, want StoreFailed and 1 answer", r)
	}
	w.hosts[2].broken = nil
	if r := w.wait(a, a.add("kept", majority, 1)); r.Outcome != replication.Done || r.Answered != 2 {
		t.Errorf("one working disk on the other nodes: got %+v, want Done and 2 answers", r)
	}
}

// If the local disk does not answer, a request fails even if the other nodes answer. The node
// itself does not count as a participant.
func TestDiskDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	a := w.hosts[0]
	a.held = true
	r := w.wait(a, a.add("kept", majority, 1))
	if r.Outcome != replication.StoreFailed || r.Err == nil || r.Answered != 2 || r.Required != 2 || len(r.Silent) != 0 {
		t.Errorf("the local disk does not answer: got %+v, want StoreFailed with 2 of 2 answers", r)
	}
	w.cut = func(x, y *host) bool { return x != y }
	r = w.wait(a, a.add("kept", majority, 1))
	if r.Outcome != replication.TimedOut || r.Answered != 0 || r.Required != 2 || len(r.Silent) != 2 {
		t.Errorf("no disk or node answers: got %+v, want TimedOut with 0 of 2 answers and 2 silent nodes", r)
	}
}

// The merged result of a read is stored even if the read fails.
func TestReadStoresMergedValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"kept"}, GossipInterval: time.Hour}, 3)
	w.cut = func(x, y *host) bool { return x != y }
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	b.add("kept", local, 1)
	c.put("kept", local, "x")
	w.run(time.Second) // no other node receives the value
	w.cut = nil
	if r := w.wait(a, a.get("kept", all)); r.Outcome != replication.Failed {
		t.Fatalf("a read of two types: got %+v, want Failed", r)
	}
	a.sync()
	if found, there := a.show("kept") != "-", len(a.disk["kept"]) > 0; !found || !there {
		t.Errorf("in memory: %t, on disk: %t, want both", found, there)
	}
}

// Stop retries unwritten records once.
func TestStopRetriesRecords(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	a := w.hosts[0]
	a.broken = errDisk
	const keys = 2_500
	for i := range keys {
		a.add(fmt.Sprint("shard-", i), local, 1)
	}
	a.sync()
	a.broken = nil
	a.step(replication.Stop{})
	a.sync()
	if n := len(a.disk); n != keys {
		t.Errorf("%d of %d keys are on disk, want all", n, keys)
	}
}

// A restarted node has its stored data. It serves no request before the data is loaded.
func TestLoad(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	h := w.hosts[0]
	w.wait(h, h.add("kept", local, 7))
	w.wait(h, h.put("shard-1", local, "a", "b"))
	w.wait(h, h.del("shard-2", local))
	disk := maps.Clone(h.disk)
	h.ended = true
	cfg := w.cfg
	back := newWorld(t, 2, cfg, 0)
	later := back.start("n1", disk)
	if later.show("kept") != "7" || later.show("shard-1") != "a b" || later.show("shard-2") != "deleted" {
		t.Errorf("after the restart: got %s, %s, %s, want 7, a b and deleted", later.show("kept"), later.show("shard-1"), later.show("shard-2"))
	}
	later.add("kept", local, 1)
	if later.show("kept") != "8" {
		t.Errorf("the counter is %s, want 8", later.show("kept"))
	}
}

func TestRequestsWaitForLoading(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	stored := w.hosts[0]
	w.wait(stored, stored.add("kept", local, 7))
	h := &host{w: w, self: node("x", 9), actor: stored.actor, replies: map[uint64]replication.Reply{}, values: map[string]replication.Change{}}
	cfg := w.cfg
	cfg.Name, cfg.Self, cfg.Rand, cfg.MaxRequests = "r", stored.actor, w.rnd, 2
	h.m = must(replication.New(cfg))
	get, add := h.get("kept", local), h.add("kept", local, 1)
	if busy := h.get("kept", local); h.replies[busy].Outcome != replication.Busy || len(h.replies) != 1 {
		t.Errorf("while loading: got %v, want Busy for one request only", h.replies)
	}
	if n := h.m.ReplicaCount(); n != 0 {
		t.Errorf("%d replicas while loading, want 0", n)
	}
	h.step(replication.Load{Key: "kept", Data: stored.disk["kept"]})
	h.step(replication.Loaded{})
	if r := h.replies[get]; r.Outcome != replication.Done || show(r.Value) != "7" {
		t.Errorf("get: %+v, want Done with 7", r)
	}
	if len(h.storing) != 1 || h.show("kept") != "8" || h.replies[add].Outcome != 0 {
		t.Errorf("update: %+v, %d records, want no reply, one record and the count 8", h.replies[add], len(h.storing))
	}
}

// A damaged record stops the machine, because continuing would lose acknowledged data.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	for subject, data := range map[string][]byte{"empty": {}, "garbage": {1, 2, 3}, "another version": {9, 0, 0, 0}, "no value": {1, 0, 0, 1, 9, 0}} {
		w := durable(t, 0)
		h := w.start("n1", map[string][]byte{"kept": data})
		if !h.stopped || len(h.notes) != 1 || h.notes[0].Kind != replication.NoteLoad {
			t.Errorf("%s: stopped: %t, notes %v, want a stop with one note about the record", subject, h.stopped, h.notes)
		}
	}
}

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
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	check(text(b.Take(10, 100)), "[]")
	b.Add([]replication.Store{store(1, "a", "1"), store(2, "b", "2"), store(3, "a", "3"), {Nr: 4, Key: "c"}})
	if b.Len() != 3 {
		t.Errorf("%d records wait, want 3", b.Len())
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
		t.Errorf("Fit returned %v, %v, want 2 records, and ErrInvalid for the other one", fit, unfit)
	}
}
