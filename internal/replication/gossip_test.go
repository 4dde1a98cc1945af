// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// sentBy returns the number and the bytes of the messages of a kind that a node has sent since an
// index of w.sent.
func (w *world) sentBy(h *host, kind replication.Kind, since int) (n, bytes int) {
	for _, l := range w.sent[since:] {
		if l.from == h && l.send.Kind == kind {
			n++
			bytes += len(l.send.Data)
		}
	}
	return n, bytes
}

// A node that receives a Root computes its digests in several steps before it answers.
func TestDigestsTakeSeveralSteps(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 2_000
	for i := range keys {
		a.add(fmt.Sprint("counter-", i), local, 1)
	}
	w.keep = true
	w.now += time.Minute // the changes are no longer recent
	a.receive(b, replication.Root{Digest: replication.Digest{1}})
	if n, _ := w.sentBy(a, replication.KindGroups, 0); n != 0 {
		t.Fatal("all digests were computed in one step")
	}
	ticks := 0
	for ; ticks < 100; ticks++ {
		if n, _ := w.sentBy(a, replication.KindGroups, 0); n > 0 {
			break
		}
		w.now = max(w.now, a.m.Next())
		a.add(fmt.Sprint("counter-", ticks%keys), local, 1) // changes continue
		a.apply(a.m.Tick(w.now))
	}
	if ticks < 3 || ticks == 100 {
		t.Errorf("the Root was answered after %d steps, want 3 to 99", ticks)
	}
	b.receive(a, replication.Root{Digest: a.m.Root()})
	w.keep = false
	w.run(time.Second)
	w.converge(time.Minute)
	w.keep, w.sent = true, nil
	a.receive(b, replication.Root{Digest: a.m.Root()})
	if n, _ := w.sentBy(a, replication.KindGroups, 0); n != 0 || a.m.Counters().Equal == 0 {
		t.Error("the comparison did not find equal data")
	}
}

// The digests of a few large values also take several steps.
func TestLargeDigestsTakeSeveralSteps(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 20 {
		a.put(fmt.Sprint("set-", i), local, strings.Repeat("x", 60<<10), strings.Repeat("y", 60<<10))
	}
	w.now += time.Minute // the changes are no longer recent
	since := len(w.sent)
	a.receive(b, replication.Root{Digest: replication.Digest{1}})
	ticks := 0
	for ; ticks < 40; ticks++ {
		if n, _ := w.sentBy(a, replication.KindGroups, since); n > 0 {
			break
		}
		w.now = max(w.now, a.m.Next())
		a.apply(a.m.Tick(w.now))
	}
	if ticks < 2 || ticks == 40 {
		t.Errorf("the Root was answered after %d steps, want 2 to 39", ticks)
	}
}

// A node with permanent changes still answers comparisons.
func TestChangesFasterThanDigests(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 1_200
	change := func() {
		for i := range keys {
			a.add(fmt.Sprint("counter-", i), local, 1)
		}
	}
	change()
	since := len(w.sent)
	a.receive(b, replication.Root{Digest: replication.Digest{1}})
	for range 60 {
		if n, _ := w.sentBy(a, replication.KindGroups, since); n > 0 {
			return
		}
		w.now = max(w.now, a.m.Next())
		change()
		a.apply(a.m.Tick(w.now))
	}
	t.Error("the Root was not answered")
}

// Requested entries are sent in several steps, and completely.
func TestEntriesTakeSeveralSteps(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const keys, size = 600, 1_000
	w.cut = func(_, _ *host) bool { return true }
	var want replication.Want
	for i := range keys {
		key := fmt.Sprint("set-", i)
		a.put(key, local, strings.Repeat("x", size))
		want.Keys = append(want.Keys, key)
	}
	w.run(time.Second)
	w.cut, w.keep = nil, true
	since := len(w.sent)
	a.receive(b, want)
	if _, bytes := w.sentBy(a, replication.KindGossip, since); bytes < size || bytes > 40<<10 {
		t.Errorf("the first step sent %d bytes, want at least one entry and at most 40 KiB", bytes)
	}
	w.run(time.Second)
	for _, l := range w.sent[since:] { // the receiver merges each message in one step
		if l.from == a && len(l.send.Data) > 18<<10 {
			t.Errorf("a message has %d bytes, want at most 18 KiB", len(l.send.Data))
		}
	}
	for i := range keys {
		if _, _, found := b.m.Value(fmt.Sprint("set-", i)); !found {
			t.Fatalf("key %d was not sent", i)
		}
	}
	// A node that has left receives no further entries.
	a.receive(b, want)
	w.set(b.self, identity.Removed)
	a.sendMembers()
	since = len(w.sent)
	for range 10 {
		w.now = max(w.now, a.m.Next())
		a.apply(a.m.Tick(w.now))
	}
	if n, _ := w.sentBy(a, replication.KindGossip, since); n > 0 {
		t.Errorf("%d messages were sent to a node that has left, want 0", n)
	}
}

// A request for too many entries is answered partially. Gossip finds the rest.
func TestPendingAnswersAreLimited(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.cut = func(_, _ *host) bool { return true }
	var want replication.Want
	for i := range 4 {
		key := fmt.Sprint("set-", i)
		a.put(key, local, strings.Repeat("x", 50<<10))
		want.Keys = append(want.Keys, key)
	}
	w.run(time.Second)
	since := len(w.sent)
	const asked = 100
	for range asked {
		a.receive(b, want)
	}
	for range 3 * asked {
		w.now = max(w.now, a.m.Next())
		a.apply(a.m.Tick(w.now))
	}
	// Each answer begins at once with one entry. 64 answers are completed.
	_, bytes := w.sentBy(a, replication.KindGossip, since)
	if most := (asked + 3*64) * 51 << 10; bytes > most || bytes < asked*50<<10 {
		t.Errorf("sent %d bytes, want at most %d", bytes, most)
	}
}

// The keys of a comparison are sent in several messages, because a message is processed in one
// step.
func TestKeysTakeSeveralMessages(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 4_000
	w.cut = func(_, _ *host) bool { return true }
	for i := range keys {
		a.add(fmt.Sprint("counter-", i), local, 1)
	}
	var all replication.Buckets
	for i := range uint8(32) {
		g := replication.Group{Nr: i}
		for j := range g.Digests {
			g.Digests[j] = replication.Digest{1}
		}
		all.Groups = append(all.Groups, g)
	}
	since, listed, messages := len(w.sent), 0, 0
	a.receive(b, all)
	for _, l := range w.sent[since:] {
		msg, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Keys)
		if !ok || l.from != a {
			continue
		}
		messages++
		n := 0
		for _, list := range msg.Lists {
			n += len(list.Keys)
		}
		if listed += n; n > 1_100 || msg.More {
			t.Errorf("a message lists %d keys, More is %v, want at most 1,100 keys without More", n, msg.More)
		}
	}
	if listed != keys || messages < 4 {
		t.Errorf("%d keys were listed in %d messages, want all keys in at least 4 messages", listed, messages)
	}
}

// Unused keys are removed in several steps, and completely.
func TestExpiryTakesSeveralSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"*": time.Minute}, NotifyInterval: time.Hour}, 1)
	h := w.hosts[0]
	const keys = 12_000
	for i := range keys {
		h.add(fmt.Sprint("counter-", i), local, 1)
	}
	w.now += 2 * time.Minute
	var forgotten []uint64
	for range 20 {
		before := h.m.Counters().Expired
		w.now = max(w.now, h.m.Next())
		h.apply(h.m.Tick(w.now))
		if n := h.m.Counters().Expired - before; n > 0 {
			forgotten = append(forgotten, n)
		}
	}
	sum := uint64(0)
	for _, n := range forgotten {
		if sum += n; n > 5_000 {
			t.Errorf("one step removed %d keys, want at most 5,000", n)
		}
	}
	if sum != keys {
		t.Errorf("removed %d of %d keys in %d steps, want all", sum, keys, len(forgotten))
	}
	// The next scan starts at the beginning.
	h.add("counter-1", local, 1)
	w.now += 2 * time.Minute
	for range 3 {
		w.now = max(w.now, h.m.Next())
		h.apply(h.m.Tick(w.now))
	}
	if n := h.m.Counters().Expired; n != keys+1 {
		t.Errorf("removed %d keys in total, want all keys and one more", n)
	}
}

// verdicts returns the verdicts in the acknowledgements of a node.
func (w *world) verdicts(h *host) []replication.Verdict {
	var all []replication.Verdict
	for _, l := range w.sent {
		if ack, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Ack); ok && l.from == h {
			all = append(all, ack.Verdict)
		}
	}
	return all
}

// Only the type of a known delta is decoded.
func TestKnownDeltaIsNotDecoded(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(a, a.put("s", all, "x"))
	known := b.m.Counters().DeltasKnown
	deliver := func(delta []byte) {
		b.receive(a, replication.Delta{Nr: 77, Items: []replication.Item{{Key: "s", From: 1, To: 1, Delta: delta}}})
	}
	sets := must(must(crdt.ORSet[string]{}.Add(a.actor, "y")).AppendBinary(nil))
	w.sent = nil
	deliver(append(encodedDelta(must(crdt.ORSet[string]{}.Add(a.actor, "y")))[:3], "?"...))
	if got := w.verdicts(b); !slices.Equal(got, []replication.Verdict{replication.Merged}) || b.m.Counters().DeltasKnown != known+1 {
		t.Errorf("got verdicts %v, notes %+v, want Merged and one known delta", got, b.notes)
	}
	// A delta of another type is not merged, even if its version is known.
	for subject, delta := range map[string][]byte{
		"empty": nil, "a value": sets,
		"other elements": encodedDelta(must(crdt.ORSet[int]{}.Add(a.actor, 1))),
		"another type":   encodedDelta(must(crdt.LWWMap[string, string]{}.Put(a.actor, "k", "v"))),
		"a counter":      encodedDelta(crdt.GCounter{}.Add(a.actor, 1)),
	} {
		w.sent = nil
		deliver(delta)
		if got := w.verdicts(b); !slices.Equal(got, []replication.Verdict{replication.Refused}) || b.m.Counters().DeltasKnown != known+1 {
			t.Errorf("%s: got verdicts %v, want Refused", subject, got)
		}
	}
	if got := b.show("s"); got != "x" {
		t.Errorf("b has %s, want x", got)
	}
}

// encodedDelta returns the encoded delta of a value.
func encodedDelta(v any) []byte {
	return must(must((*crdt.Types)(nil).Value(v)).Delta().AppendBinary(nil))
}

// Effects that are not passed to Reuse stay valid.
func TestEffectsWithoutReuse(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	h := w.hosts[0]
	step := func(key string) replication.Effects {
		return h.m.Step(w.now, batch(&replication.Update{Request: h.request(key, local), Modify: modify(func(c crdt.GCounter) (crdt.GCounter, error) {
			return c.Add(h.actor, 1), nil
		})}))
	}
	first := step("first")
	step("second")
	if len(first.Values) != 1 || first.Values[0].Key != "first" || len(first.Replies) != 1 {
		t.Fatalf("got effects %+v, want one value and one reply for the key first", first)
	}
	h.m.Reuse(first)
	again := step("third")
	if len(again.Values) != 1 || again.Values[0].Key != "third" || len(again.Replies) != 1 || len(again.Notes)+len(again.Events)+len(again.Store) > 0 {
		t.Errorf("got effects %+v, want only one value and one reply for the key third", again)
	}
	if &again.Values[0] != &first.Values[0] {
		t.Error("the memory was not reused")
	}
	step("fourth")
	if again.Values[0].Key != "third" {
		t.Errorf("effects were reused without a call of Reuse: %+v", again)
	}
}

// A comparison does not send entries that have changed lately, because deltas deliver the changes.
// Later comparisons send such entries.
func TestRecentChangeIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Minute}, 2)
	w.run(time.Second)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 64
	buckets := map[uint16][]string{}
	for i := range keys {
		key := fmt.Sprint("set-", i)
		buckets[bucket(key)] = append(buckets[bucket(key)], key)
		w.wait(a, a.put(key, all, "x"))
	}
	w.run(2 * time.Minute)
	w.cut, w.keep = func(_, _ *host) bool { return true }, true
	for i := range keys {
		a.put(fmt.Sprint("set-", i), local, "y")
	}
	// compare returns the number of entries that a node sends in answer to digests.
	compare := func(h, by *host, d replication.Digest) int {
		since := len(w.sent)
		h.receive(by, replication.Root{Digest: replication.Digest{1}})
		for range 10 {
			if n, _ := w.sentBy(h, replication.KindGroups, since); n > 0 {
				break
			}
			w.now = max(w.now, h.m.Next())
			h.apply(h.m.Tick(w.now))
		}
		list := replication.Keys{}
		for i := range uint16(1024) {
			l := replication.KeyList{Bucket: i, Complete: true}
			for _, key := range buckets[i] {
				l.Keys = append(l.Keys, replication.KeyDigest{Key: key, Digest: d})
			}
			slices.SortFunc(l.Keys, func(a, b replication.KeyDigest) int { return strings.Compare(a.Key, b.Key) })
			list.Lists = append(list.Lists, l)
		}
		w.sent = nil
		h.receive(by, list)
		sent := 0
		for _, l := range w.sent {
			if msg, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Gossip); ok && l.from == h {
				sent += len(msg.Entries)
			}
		}
		return sent
	}
	other, changes := replication.Digest{1}, replication.Digest(bytes.Repeat([]byte{0xff}, 16))
	if n := compare(a, b, other); n == 0 || n > keys/2 {
		t.Errorf("sent %d of %d entries at once, want at most half", n, keys)
	}
	if n := compare(b, a, other); n != keys {
		t.Errorf("a node without recent changes sent %d of %d entries, want all", n, keys)
	}
	for i := range keys { // b receives the changes
		item := replication.Item{Key: fmt.Sprint("set-", i), From: 2, To: 2, Delta: encodedDelta(must(crdt.ORSet[string]{}.Add(a.actor, "z")))}
		b.receive(a, replication.Delta{Items: []replication.Item{item}})
	}
	if n := compare(b, a, other); n == 0 || n > keys/2 {
		t.Errorf("a node with recent changes sent %d of %d entries, want at most half", n, keys)
	}
	w.now += time.Minute
	for _, pair := range [][2]*host{{a, b}, {b, a}} {
		if n := compare(pair[0], pair[1], other); n != keys {
			t.Errorf("sent %d of %d entries later, want all", n, keys)
		}
	}
	if n := compare(a, b, changes); n != 0 {
		t.Errorf("sent %d entries that are changing on the other node, want 0", n)
	}
}

// An entry that has changed lately is listed without a digest. Computing the digest would be expensive, and the nodes would have different digests in any case.
func TestRecentChangeHasNoDigest(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 64
	listed := func() (changing int) {
		var all replication.Buckets
		for i := range 32 {
			g := replication.Group{Nr: uint8(i)}
			for j := range g.Digests {
				g.Digests[j] = replication.Digest{1}
			}
			all.Groups = append(all.Groups, g)
		}
		since := len(w.sent)
		a.receive(b, replication.Root{Digest: replication.Digest{1}})
		a.receive(b, all)
		n := 0
		for _, l := range w.sent[since:] {
			if msg, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Keys); ok && l.from == a {
				for _, list := range msg.Lists {
					for _, k := range list.Keys {
						n++
						if k.Digest == replication.Digest(bytes.Repeat([]byte{0xff}, 16)) {
							changing++
						}
					}
				}
			}
		}
		if n != keys {
			t.Fatalf("%d of %d entries were listed, want all", n, keys)
		}
		return changing
	}
	for i := range keys {
		a.put(fmt.Sprint("set-", i), local, "x")
	}
	if n := listed(); n < keys/2 || n == keys {
		t.Errorf("%d of %d entries have no digest, want some, but not all", n, keys)
	}
	w.now += time.Minute
	if n := listed(); n != 0 {
		t.Errorf("%d of %d entries have no digest after the changes, want 0", n, keys)
	}
}

// bucket returns the bucket of a key in the digest tree.
func bucket(key string) uint16 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint16(h[:]) % 1024
}
