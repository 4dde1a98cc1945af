// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

var writeGolden = flag.Bool("update", false, "write golden files that are missing")

func node(name string, uid uint64) identity.Node { return identity.Node{Name: name, UID: uid} }

func digest(b byte) (d replication.Digest) {
	for i := range d {
		d[i] = b + byte(i)
	}
	return d
}

func digests(b byte) (all [32]replication.Digest) {
	for i := range all {
		all[i] = digest(b + byte(i))
	}
	return all
}

// messages returns a message of each kind, and several of the kinds that have several forms.
func messages() map[string]replication.Message {
	a, b, c := node("a:7400", 1), node("b", 2), node("host-3.example", 1<<63)
	entry := replication.Entry{
		Key: "visits", Value: []byte{1, 2, 3}, Used: 1_767_323_045_000,
		Pruning:  []replication.Marker{{Removed: a, Owner: b, Seen: []identity.Node{b, c}}, {Removed: c, Performed: true, Obsolete: 1_767_323_045_678}},
		Versions: []replication.Version{{Node: a, N: 1}, {Node: b, N: 300}},
	}
	plain := replication.Entry{Key: "ä", Value: []byte{7}}
	tombstone := replication.Entry{Key: "gone", Deleted: true, Used: 5}
	return map[string]replication.Message{
		"write":            replication.Write{Nr: 1, Entry: entry},
		"write-deleted":    replication.Write{Entry: tombstone},
		"delta":            replication.Delta{Nr: 2, Items: []replication.Item{{Key: "a", From: 1, To: 3, Delta: []byte{9}, Pruned: []identity.Node{a, b}}, {Key: "b"}}},
		"ack":              replication.Ack{Nr: 300, Verdict: replication.Merged},
		"ack-gap":          replication.Ack{Nr: 1, Verdict: replication.Gap},
		"ack-full":         replication.Ack{Nr: 2, Verdict: replication.Full},
		"read":             replication.Read{Nr: 1 << 40, Key: "visits"},
		"read-result":      replication.ReadResult{Nr: 4, Entry: &entry},
		"read-result-none": replication.ReadResult{Nr: 4},
		"root":             replication.Root{Digest: digest(1)},
		"groups":           replication.Groups{Digests: digests(3)},
		"buckets":          replication.Buckets{Groups: []replication.Group{{Nr: 0, Digests: digests(4)}, {Nr: 31, Digests: digests(5)}}},
		"keys": replication.Keys{More: true, Lists: []replication.KeyList{
			{Bucket: 7, Complete: true, Keys: []replication.KeyDigest{{Key: "a", Digest: digest(1)}, {Key: "b", Digest: digest(2), Used: 9}}},
			{Bucket: 1023, After: "x", Keys: []replication.KeyDigest{{Key: "y", Digest: digest(1)}}},
			{Bucket: 0, Complete: true},
		}},
		"uses":       replication.Uses{Keys: []replication.Use{{Key: "a", Used: 1}, {Key: "b", Used: 1 << 41}}},
		"want":       replication.Want{Keys: []string{"a", "b"}},
		"gossip":     replication.Gossip{SendBack: true, Entries: []replication.Entry{entry, plain, tombstone}},
		"pull":       replication.Pull{Nr: 1, From: 0, To: 1024},
		"pull-after": replication.Pull{Nr: 2, From: 5, To: 6, After: "visits"},
		"part":       replication.Part{Nr: 1, Index: 2, Count: 3, Data: []byte{1, 2}},
		"chunk":      replication.Chunk{Nr: 1, Entries: []replication.Entry{plain}, Done: true, Bucket: 3, After: "ä"},
	}
}

func records() map[string]replication.Record {
	return map[string]replication.Record{
		"record":         {Value: []byte{1, 2, 3}, Pruning: []replication.Marker{{Removed: node("a", 1), Performed: true, Obsolete: 77}}},
		"record-deleted": {Deleted: true},
	}
}

// golden compares encoded bytes with a file. The file was written by version 1 of the format and is
// never rewritten.
func golden(t *testing.T, name string, encoded []byte) {
	t.Helper()
	path := filepath.Join("testdata", "v1", name+".golden")
	if _, err := os.Stat(path); *writeGolden && errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(encoded)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(encoded); got != strings.TrimSpace(string(b)) {
		t.Errorf("%s: got %s, want the bytes of the golden file", name, got)
	}
}

func TestMessagesGolden(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		encoded := replication.AppendMessage(nil, m)
		golden(t, name, encoded)
		got, err := replication.DecodeMessage(encoded)
		if err != nil || !slices.Equal(replication.AppendMessage(nil, got), encoded) {
			t.Errorf("%s: decoded as %+v, %v, want an equal value", name, got, err)
		}
		if name != "delta" && name != "keys" && !reflect.DeepEqual(got, m) { // these messages have empty slices
			t.Errorf("%s: decoded as %+v, want %+v", name, got, m)
		}
		for n := range encoded {
			if got, err := replication.DecodeMessage(encoded[:n]); !errors.Is(err, replication.ErrMalformed) {
				t.Fatalf("%s, first %d bytes: decoded as %+v, %v, want ErrMalformed", name, n, got, err)
			}
		}
		if _, err := replication.DecodeMessage(append(slices.Clone(encoded), 0)); !errors.Is(err, replication.ErrMalformed) {
			t.Errorf("%s with an additional byte: got error %v, want ErrMalformed", name, err)
		}
		newer := append(slices.Clone(encoded), 1, 2, 3)
		newer[0]++
		if _, err := replication.DecodeMessage(newer); err != nil {
			t.Errorf("%s with fields of a newer version: got error %v, want none", name, err)
		}
		other := slices.Clone(encoded)
		other[0] += 1 << 4
		if _, err := replication.DecodeMessage(other); !errors.Is(err, replication.ErrMalformed) {
			t.Errorf("%s of another major version: got error %v, want ErrMalformed", name, err)
		}
	}
}

func TestRecordsGolden(t *testing.T) {
	t.Parallel()
	for name, r := range records() {
		encoded := replication.AppendRecord(nil, r)
		golden(t, name, encoded)
		if got, err := replication.DecodeRecord(encoded); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s: decoded as %+v, %v, want an equal value", name, got, err)
		}
		for n := range encoded {
			if _, err := replication.DecodeRecord(encoded[:n]); !errors.Is(err, replication.ErrMalformed) {
				t.Errorf("%s, first %d bytes: got error %v, want ErrMalformed", name, n, err)
			}
		}
		other := slices.Clone(encoded)
		other[0]++
		if _, err := replication.DecodeRecord(other); !errors.Is(err, replication.ErrMalformed) {
			t.Errorf("%s of another version: got error %v, want ErrMalformed", name, err)
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}
	for subject, b := range map[string][]byte{
		"kind 0":                        {0x10, 0, 0},
		"kind 16":                       {0x10, 16, 0},
		"many nodes":                    append([]byte{0x10, 3}, huge...),
		"a node without UID":            append([]byte{0x10, 3, 1, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 0}, 1, 1),
		"a long number":                 {0x10, 3, 0, 0x81, 0, 1},
		"a huge number":                 append(append([]byte{0x10, 3, 0}, huge...), 1),
		"no verdict":                    {0x10, 3, 0, 1, 0},
		"verdict 6":                     {0x10, 3, 0, 1, 6},
		"an empty key":                  {0x10, 4, 0, 1, 0},
		"a key with a star":             {0x10, 4, 0, 1, 2, 'a', '*'},
		"a key that is not UTF-8":       {0x10, 4, 0, 1, 1, 0xff},
		"many keys":                     append([]byte{0x10, 11, 0}, huge...),
		"group 32":                      append([]byte{0x10, 8, 0, 1, 32}, make([]byte, 512)...),
		"bucket 1024":                   {0x10, 9, 0, 0, 1, 0x80, 8, 0, 1, 0},
		"keys not in order":             append([]byte{0x10, 9, 0, 0, 1, 0, 0, 1, 2, 1, 'b'}, append(append(make([]byte, 17), 1, 'a'), make([]byte, 17)...)...),
		"part 1 of 1":                   {0x10, 15, 0, 1, 1, 1, 1, 1},
		"an empty part":                 {0x10, 15, 0, 1, 0, 1, 0},
		"an empty pull range":           {0x10, 13, 0, 1, 5, 5, 0},
		"a reversed change range":       {0x10, 2, 0, 0, 1, 1, 'a', 2, 1, 0, 0},
		"a node index beyond the table": {0x10, 2, 0, 0, 1, 1, 'a', 1, 1, 0, 1, 0},
		"too large":                     make([]byte, replication.MaxMessage+1),
	} {
		if got, err := replication.DecodeMessage(b); !errors.Is(err, replication.ErrMalformed) {
			t.Errorf("%s: decoded as %+v, %v, want ErrMalformed", subject, got, err)
		}
	}
}

// limited fails if f allocates more than a multiple of its input. It uses the lowest of several
// measurements, because other goroutines also allocate.
func limited(t *testing.T, input int, f func()) {
	t.Helper()
	limit := uint64(64*input + 1<<20)
	var least uint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = after.TotalAlloc - before.TotalAlloc; least <= limit {
			return
		}
	}
	t.Errorf("%d bytes of input: %d bytes allocated, want at most %d", input, least, limit)
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(replication.AppendMessage(nil, m))
	}
	for _, kind := range []replication.Kind{replication.KindDelta, replication.KindWant, replication.KindUses, replication.KindGossip} {
		f.Add([]byte{0x10, byte(kind), 0, 0, 0x80, 0x80, 0x80, 8}) // counts without elements
		f.Add([]byte{0x10, byte(kind), 0, 0x80, 0x80, 0x80, 8})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m replication.Message
		var err error
		limited(t, len(data), func() { m, err = replication.DecodeMessage(data) })
		if !bytes.Equal(data, before) {
			t.Error("the decoder modified the message")
		}
		if err != nil {
			if !errors.Is(err, replication.ErrMalformed) {
				t.Errorf("got error %v, want ErrMalformed", err)
			}
			return
		}
		once := replication.AppendMessage(nil, m)
		again, err := replication.DecodeMessage(once)
		if err != nil || !bytes.Equal(replication.AppendMessage(nil, again), once) {
			t.Fatalf("%x is encoded again as %x, %v, want the same bytes", once, replication.AppendMessage(nil, again), err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(replication.AppendRecord(nil, r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r replication.Record
		var err error
		limited(t, len(data), func() { r, err = replication.DecodeRecord(data) })
		if err != nil {
			if !errors.Is(err, replication.ErrMalformed) {
				t.Errorf("got error %v, want ErrMalformed", err)
			}
			return
		}
		once := replication.AppendRecord(nil, r)
		if again, err := replication.DecodeRecord(once); err != nil || !bytes.Equal(replication.AppendRecord(nil, again), once) {
			t.Fatalf("%x is not decoded to an equal record: %v", once, err)
		}
	})
}

// No message of a member makes a machine panic or lose data.
func FuzzReceive(f *testing.F) {
	for _, m := range real(f) {
		f.Add(m)
	}
	for _, m := range messages() {
		f.Add(replication.AppendMessage(nil, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		self, other := node("a", 1), node("b", 2)
		actor := must(crdt.NewSelf(self))
		m := must(replication.New(replication.Config{Name: "r", Self: actor, Started: started, Rand: rand.New(rand.NewPCG(1, 2))}))
		m.Step(0, batch(replication.Members{All: []identity.Member{
			{Node: self, Status: identity.Up, UpNumber: 2}, {Node: other, Status: identity.Up, UpNumber: 1},
		}}))
		m.Step(0, batch(replication.Update{
			Request: replication.Request{ID: 1, Key: "visits", Level: majority},
			Modify:  modify(func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(actor, 7), nil }),
		}))
		m.Step(0, batch(replication.Get{Request: replication.Request{ID: 2, Key: "cart", Level: majority}}))
		for i := range 3 {
			m.Step(time.Duration(i)*time.Second, batch(received{From: other, Data: data}))
		}
		v, deleted, found := m.Value("visits")
		if !found || !deleted && must(crdt.As[crdt.GCounter](nil, v)).Value() < 7 {
			t.Error("the count is below 7, want at least the acknowledged 7")
		}
		for range 20 {
			m.Tick(m.Next())
		}
		if n := m.Counters().Open; n != 0 {
			t.Errorf("%d rounds are open, want 0", n)
		}
	})
}

// real returns messages that machines have sent.
func real(f *testing.F) [][]byte {
	f.Helper()
	w := newWorld(f, 3, replication.Config{}, 3)
	w.keep, w.lossy = true, true
	a, b := w.hosts[0], w.hosts[1]
	for range 10 {
		a.add("visits", majority, 1)
		b.put("cart", majority, "tea", "milk")
		a.drop("cart", local, "tea")
		b.get("visits", majority)
		w.run(time.Second)
	}
	var all [][]byte
	for i, l := range w.sent {
		if i%10 == 0 {
			all = append(all, l.send.Data)
		}
	}
	return all
}
