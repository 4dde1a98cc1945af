// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding/allocation"
)

// Queries and their replies have a stable encoding, and malformed ones are rejected.
func TestQueryEncoding(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", coordinator.MaxTypeLength)
	id := strings.Repeat("i", journal.MaxIDLength)
	for subject, about := range map[query]string{queryCounts: "", queryPresence: id} {
		if got, typ, entity, err := decodeQuery(encodeQuery(subject, name, about)); err != nil || got != subject || typ != name || entity != about {
			t.Errorf("decodeQuery = %d, %q, %q, %v, want the encoded query", got, typ, entity, err)
		}
	}
	for b, want := range map[byte]eventsourcing.Presence{0: eventsourcing.Absent, 1: eventsourcing.Recovering, 2: eventsourcing.Running, notHosted: eventsourcing.Absent} {
		if got, hosted, err := decodePresence([]byte{wireVersion, b}); got != want || hosted != (b != notHosted) || err != nil {
			t.Errorf("decodePresence of %d = %v, %t, %v, want %v", b, got, hosted, err, want)
		}
	}
	for _, b := range [][]byte{{wireVersion}, {wireVersion, 3}, {wireVersion, 1, 1}} {
		if got, hosted, err := decodePresence(b); !errors.Is(err, errMalformed) {
			t.Errorf("decodePresence of %v = %v, %t, %v, want errMalformed", b, got, hosted, err)
		}
	}
	counts := []ShardCount{{Shard: 0, Entities: 7}, {Shard: 3}, {Shard: coordinator.MaxShards - 1, Entities: 1 << 40}}
	if got, err := decodeCounts(encodeCounts(counts)); err != nil || !reflect.DeepEqual(got, counts) {
		t.Errorf("decodeCounts = %v, %v, want the encoded counts", got, err)
	}
	nodes := []identity.Node{{Name: "a", UID: 1}, {Name: "b", UID: 2}}
	if got, err := decodeNodes(encodeNodes([]allocation.Region{{Node: nodes[0]}, {Node: nodes[1]}})); err != nil || !reflect.DeepEqual(got, nodes) {
		t.Errorf("decodeNodes = %v, %v, want the encoded nodes", got, err)
	}
	if got, err := decodeQueryReply(encodeQueryReply([]byte("all"), nil)); err != nil || string(got) != "all" {
		t.Errorf("decodeQueryReply = %q, %v, want the encoded reply", got, err)
	}
	if _, err := decodeQueryReply(encodeQueryReply(nil, errors.New(strings.Repeat("no", 1000)))); err == nil || errors.Is(err, errMalformed) || len(err.Error()) > 2*maxReason {
		t.Errorf("decodeQueryReply of a long error: %v, want a truncated error of the other node", err)
	}
	for _, counts := range [][]ShardCount{{{Shard: 3}, {Shard: 3}}, {{Shard: coordinator.MaxShards - 1}, {Shard: 0}}} {
		if got, err := decodeCounts(encodeCounts(counts)); !errors.Is(err, errMalformed) {
			t.Errorf("decodeCounts of unsorted or unknown shards = %v, %v, want errMalformed", got, err)
		}
	}
}

func FuzzQueryEncoding(f *testing.F) {
	f.Add(encodeQuery(queryRegions, "account", ""))
	f.Add(encodeQuery(queryPresence, "account", "42"))
	f.Add([]byte{wireVersion, notHosted})
	f.Add(encodeCounts([]ShardCount{{Shard: 1, Entities: 2}, {Shard: 5}}))
	f.Add(encodeNodes([]allocation.Region{{Node: identity.Node{Name: "a", UID: 1}}}))
	f.Add(encodeQueryReply(nil, errStopping))
	f.Fuzz(func(t *testing.T, b []byte) {
		for subject, decode := range map[string]func() (int, error){
			"question": func() (int, error) { _, name, id, err := decodeQuery(b); return len(name) + len(id), err },
			"presence": func() (int, error) { _, _, err := decodePresence(b); return 0, err },
			"counts":   func() (int, error) { all, err := decodeCounts(b); return len(all), err },
			"nodes":    func() (int, error) { all, err := decodeNodes(b); return len(all), err },
			"answer": func() (int, error) {
				all, err := decodeQueryReply(b)
				if err != nil && !errors.Is(err, errMalformed) {
					err = errMalformed // the reply of the other node is an error
				}
				return len(all), err
			},
		} {
			if n, err := decode(); n > len(b) || err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("%s: %d elements from %d bytes, %v, want at most one for each byte", subject, n, len(b), err)
			}
		}
	})
}

var errStopping = errors.New("stopping")
