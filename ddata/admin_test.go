// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/transport"
)

// mark is a user's data type.
type mark struct{ text string }

func (m mark) Merge(o mark) (mark, error) { return mark{max(m.text, o.text)}, nil }

func (m mark) AppendBinary(dst []byte) ([]byte, error) { return append(dst, m.text...), nil }

func (m mark) MarshalJSON() ([]byte, error) { return json.Marshal("mark " + m.text) }

func decodeMark(data []byte) (mark, error) { return mark{string(data)}, nil }

// operator returns an Admin, once all nodes accept requests of operators.
func (w *world) operator() *ddata.Admin {
	synctest.Wait()
	return ddata.NewAdmin(w.network.Operator("root"))
}

// collect returns the keys of a node.
func (w *world) collect(admin *ddata.Admin, at ddata.At, prefix string, deleted bool) (all []string) {
	w.Helper()
	for k, err := range admin.Keys(w.Context(), at, prefix, deleted) {
		w.must(err)
		text := k.Key + " " + k.Type
		if k.Deleted {
			text += "deleted"
		}
		if k.Durable {
			text += " durable"
		}
		all = append(all, text)
	}
	return all
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{Durable: []string{"durable-*"}, Opener: &disks{}}, "a", "b", "c")
		other := w.replicate(rs[0].Node(), ddata.Config{Name: "other"})
		w.must(w.add(other, "elsewhere", ddata.WriteLocal(), 1))
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 7))
		w.must(w.put(rs[0], ddata.WriteAll(), "tea", "milk"))
		w.must(w.add(rs[0], "durable-1", ddata.WriteAll(), 1))
		w.must(w.add(rs[0], "gone", ddata.WriteAll(), 1))
		w.must(ddata.Delete(w.Context(), rs[0], ddata.Key[crdt.GCounter]("gone"), ddata.WriteAll()))
		w.converged(rs...)
		admin := w.operator()

		node, stats, err := admin.Stats(w.Context(), ddata.At{Node: "a"})
		w.must(err)
		if node != rs[0].Node().Self().String() || len(stats) != 2 || stats[1].Replicator != "other" || stats[1].Keys != 1 {
			w.Errorf("Stats of a: got node %s, %+v, want two replicators of a, the second named other with 1 key", node, stats)
		}
		_, of, err := admin.Stats(w.Context(), ddata.At{Node: "b", Replicator: "ddata"})
		w.must(err)
		if s := of[0]; s.Replicas != 3 || s.Keys != 3 || s.Deleted != 1 || s.Digest != stats[0].Digest || len(s.Digest) != 32 {
			w.Errorf("Stats of b: got %+v, and %+v for a, want 3 replicas, 3 keys, 1 deleted and the digest of a", s, stats[0])
		}

		if got, want := w.collect(admin, ddata.At{Node: "c"}, "", false), []string{"cart ORSet[string]", "durable-1 GCounter durable", "visits GCounter"}; !slices.Equal(got, want) {
			w.Errorf("got keys %q, want %q", got, want)
		}
		if got, want := w.collect(admin, ddata.At{}, "g", true), []string{"gone deleted"}; !slices.Equal(got, want) {
			w.Errorf("got keys with prefix g %q, want %q", got, want)
		}
		for _, level := range []string{"", "local", "majority", "all"} {
			v, err := admin.Get(w.Context(), ddata.At{Node: "b"}, "cart", level)
			w.must(err)
			var types *crdt.Types
			held, err := types.Decode(v.Data)
			w.must(err)
			if text := string(crdt.JSON{}.Append(nil, held)); text != `["milk","tea"]` || v.Key != "cart" || v.Type != "ORSet[string]" || v.Node != rs[1].Node().Self().String() {
				w.Errorf("cart at level %q: got %s, %+v, want milk and tea as b holds them", level, text, v)
			}
		}
		for key, want := range map[string]error{"none": ddata.ErrNotFound, "gone": ddata.ErrDeleted} {
			if _, err := admin.Get(w.Context(), ddata.At{}, key, "majority"); !errors.Is(err, want) {
				w.Errorf("key %s: got error %v, want %v", key, err, want)
			}
		}
		if _, err := admin.Get(w.Context(), ddata.At{Replicator: "none"}, "cart", ""); !errors.Is(err, ddata.ErrNoReplicator) || errors.Is(err, ddata.ErrNotFound) {
			w.Errorf("a missing replicator: got error %v, want only ErrNoReplicator", err)
		}
	})
}

// A long result consists of several replies of one node.
func TestAdminPages(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		types, err := crdt.NewTypes(nil, crdt.Define("mark", decodeMark))
		w.must(err)
		rs := w.replicators(ddata.Config{Types: types}, "a", "b")
		var want []string
		for i := range 2500 {
			key := fmt.Sprintf("key-%04d", i)
			want = append(want, key+" GCounter")
			w.must(w.add(rs[0], ddata.Key[crdt.GCounter](key), ddata.WriteLocal(), 1))
		}
		for i := range 100 { // the JSON of these keys is six times as large
			w.must(w.add(rs[0], ddata.Key[crdt.GCounter](fmt.Sprintf("\x01%0500d", i)+strings.Repeat("\x01", 8)), ddata.WriteLocal(), 1))
		}
		long := strings.Repeat("long ", 80_000)
		_, err = ddata.Update(w.Context(), rs[0], ddata.Key[mark]("mark"), ddata.WriteLocal(), func(mark) (mark, error) { return mark{long}, nil })
		w.must(err)
		w.converged(rs...)
		admin := w.operator()
		if got := w.collect(admin, ddata.At{Node: "b"}, "key-", false); !slices.Equal(got, want) {
			w.Errorf("got %d keys with the last %q, want 2,500 keys up to key-2499", len(got), got[len(got)-1])
		}
		if got := w.collect(admin, ddata.At{}, "", false); len(got) != len(want)+101 || !slices.IsSorted(got) {
			w.Errorf("got %d keys, want the keys of all prefixes, sorted", len(got))
		}
		v, err := admin.Get(w.Context(), ddata.At{}, "mark", "")
		w.must(err)
		var none *crdt.Types
		if _, err = none.Decode(v.Data); !errors.Is(err, crdt.ErrUndefined) {
			w.Errorf("decoding an unregistered type: got error %v, want ErrUndefined", err)
		}
		held, err := types.Decode(v.Data)
		w.must(err)
		m, err := crdt.As[mark](types, held)
		if w.must(err); m.text != long {
			w.Errorf("got a mark of %d bytes, want the original text", len(m.text))
		}
		v, err = admin.GetJSON(w.Context(), ddata.At{}, "mark", "all")
		if w.must(err); string(v.Data) != `"mark `+long+`"` || v.Type != "mark" {
			w.Errorf("GetJSON returned %.20s, %d bytes, want the JSON of a mark", v.Data, len(v.Data))
		}
	})
}

// A comparison finds exactly the keys that differ.
func TestAdminDiff(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c")
		w.start("d")
		w.must(w.add(rs[0], visits, ddata.WriteAll(), 7))
		w.must(w.add(rs[0], "gone", ddata.WriteAll(), 1))
		w.must(w.add(rs[0], "same", ddata.WriteAll(), 1))
		w.converged(rs...)
		admin := w.operator()
		all := []string{"a", "b", "c", "d"}
		d, err := admin.Diff(w.Context(), "", all, 100)
		w.must(err)
		if !d.Same() || d.Nodes[0].Digest != d.Nodes[2].Digest || d.Nodes[1].Node != rs[1].Node().Self().String() || !errors.Is(d.Nodes[3].Err, ddata.ErrNoReplicator) {
			w.Errorf("Diff of equal data returned %+v, want equal digests of a and c, and ErrNoReplicator for the last node", d)
		}

		heal := w.network.Partition([]string{"c"}, []string{"a", "b", "d"})
		w.must(w.add(rs[2], visits, ddata.WriteLocal(), 1))
		w.must(w.add(rs[0], "new", ddata.WriteTo(2), 1))
		w.must(ddata.Delete(w.Context(), rs[0], ddata.Key[crdt.GCounter]("gone"), ddata.WriteTo(2)))
		d, err = admin.Diff(w.Context(), "", all, 100)
		w.must(err)
		want := map[string][]bool{"gone": {true, true, false}, "new": {true, true, false}, "visits": {true, true, false}} // whether each node holds the same as a
		if len(d.Keys) != len(want) || d.Same() || d.More {
			w.Errorf("Diff returned the keys %+v, want three keys that differ", d.Keys)
		}
		for _, k := range d.Keys {
			for i, as := range want[k.Key] {
				if (k.Held[i] == k.Held[0]) != as {
					w.Errorf("%s: got digests %q, want equality of node %d and a: %t", k.Key, k.Held, i, as)
				}
			}
			if k.Key == "gone" && k.Held[0] != ddata.DiffDeleted || k.Key == "new" && k.Held[2] != "" {
				w.Errorf("%s: got digests %q, want DiffDeleted for a deleted key and an empty digest for a missing key", k.Key, k.Held)
			}
		}
		if d, err = admin.Diff(w.Context(), "", all, 2); err != nil || len(d.Keys) != 2 || !d.More {
			w.Errorf("Diff limited to two keys returned %+v, %v, want two keys and More", d, err)
		}
		if d, err = admin.Diff(w.Context(), "", []string{"a", "x"}, 100); err != nil || d.Same() || !errors.Is(d.Nodes[1].Err, transport.ErrNoNode) {
			w.Errorf("Diff with a missing node returned %+v, %v, want ErrNoNode for node x", d, err)
		}
		heal()
		w.converged(rs...)
		if d, err = admin.Diff(w.Context(), "", all, 100); err != nil || !d.Same() {
			w.Errorf("Diff after convergence returned %+v, %v, want no difference", d, err)
		}
	})
}

// A read by an operator does not keep a key from expiring.
func TestAdminReadIsNotUse(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		r := w.replicators(ddata.Config{Expire: map[string]time.Duration{"*": 30 * time.Second}}, "a")[0]
		w.must(w.add(r, visits, ddata.WriteLocal(), 1))
		admin := w.operator()
		for range 120 {
			if _, err := admin.Get(w.Context(), ddata.At{}, "visits", ""); errors.Is(err, ddata.ErrNotFound) {
				return
			}
			w.sleep(time.Second)
		}
		w.Error("the key did not expire while an operator read it")
	})
}

// A node replies to every request of an operator, even an invalid one. A call of Admin returns for
// every reply of a node, even a malformed one.
func TestAdminInvalidRequests(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.must(w.add(w.replicators(ddata.Config{}, "a")[0], visits, ddata.WriteLocal(), 1))
		w.operator()
		asker := w.network.Operator("root")
		for _, fields := range []string{
			`"command":"explode"`, `"command":1`, `"command":"get"`, `"command":"get","key":"visits*"`, `"command":"get","key":"visits","level":"most"`,
			`"command":"get","key":"visits","offset":-1`, `"command":"bucket","bucket":-1`, `"command":"bucket","bucket":1024`,
			`"command":"stats","replicator":"` + strings.Repeat("x", 9999) + `"`,
		} {
			b, err := asker.Ask(w.Context(), "ddata", transport.AdminRead, "a", []byte(`{"service":"ddata",`+fields+`}`))
			w.must(err)
			var reply struct {
				Error string          `json:"error"`
				Part  json.RawMessage `json:"part"`
			}
			if err := json.Unmarshal(b, &reply); err != nil || reply.Error == "" || reply.Part != nil || len(reply.Error) > 4<<10 {
				w.Errorf("request %.60q: got reply %s, %v, want a short error without a value", fields, b, err)
			}
		}
	})
	for name, answer := range map[string]string{
		"invalid JSON": "{", "empty": "{}", "no end": `{"node":"a#1","more":true,"part":{"size":9,"digest":"x","data":"AAAA"},"keys":[{"key":"k"}]}`,
		"size above the limit": `{"part":{"size":999999999999}}`, "size below the data": `{"part":{"size":1,"data":"AAAAAAAA"}}`, "no node": `{"more":true,"keys":[{"key":"k"}],"part":{"size":9,"data":"AAAA"}}`,
		"too few digests": `{"sums":{"buckets":"AAAA"}}`,
	} {
		admin := ddata.NewAdmin(fixedReply(answer))
		_, getErr := admin.Get(t.Context(), ddata.At{}, "k", "")
		var keysErr error
		for _, err := range admin.Keys(t.Context(), ddata.At{}, "", false) {
			keysErr = err
		}
		d, err := admin.Diff(t.Context(), "", []string{"a"}, 1)
		if err != nil || d.Nodes[0].Err == nil {
			t.Errorf("reply %s: Diff returned %+v, %v, want an error of the node", name, d, err)
		}
		if name != "no end" && getErr == nil || (name == "no end" || name == "no node") && keysErr == nil {
			t.Errorf("reply %s: Get returned %v, Keys returned %v, want errors", name, getErr, keysErr)
		}
	}
}

// fixedReply sends the same reply to every request.
type fixedReply string

// Ask implements transport.AdminClient.
func (r fixedReply) Ask(context.Context, string, transport.AdminRight, string, []byte) ([]byte, error) {
	return []byte(r), nil
}

// Close implements transport.AdminClient.
func (r fixedReply) Close() error { return nil }

// A node without replicators, or whose replicator has ended, returns ErrNoReplicator.
func TestAdminNoReplicator(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		n := w.cluster("a")[0]
		admin := w.operator()
		if _, _, err := admin.Stats(w.Context(), ddata.At{}); !errors.Is(err, ddata.ErrNoReplicator) {
			w.Errorf("without replicators: got error %v, want ErrNoReplicator", err)
		}
		w.must(w.replicate(n, ddata.Config{}).Close(w.Context()))
		if _, _, err := admin.Stats(w.Context(), ddata.At{Replicator: "ddata"}); !errors.Is(err, ddata.ErrNoReplicator) {
			w.Errorf("after Close: got error %v, want ErrNoReplicator", err)
		}
		if s, err := cluster.NewAdmin(w.network.Operator("root")).State(w.Context(), "a"); err != nil || len(s.Members) != 1 {
			w.Errorf("the cluster returned %+v, %v, want one member", s, err)
		}
	})
}

// A read for an operator ends with its request, also if Config.Timeout is longer.
func TestAdminReadEndsWithRequest(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.must(w.add(w.replicators(ddata.Config{Timeout: 10 * time.Minute}, "a", "b")[0], visits, ddata.WriteAll(), 1))
		admin := w.operator()
		defer w.network.Partition([]string{"a"}, []string{"b"})()
		began := time.Now()
		if _, err := admin.Get(w.Context(), ddata.At{Node: "a"}, "visits", "all"); !errors.Is(err, ddata.ErrQuorum) || time.Since(began) > time.Minute {
			w.Errorf("Get from all nodes of a partition = %v after %v, want ErrQuorum within a minute", err, time.Since(began))
		}
	})
}
