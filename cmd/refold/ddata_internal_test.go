// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/plugins/leveldb"
)

// label is a data type that the command does not contain. article is an element of a set.
type (
	label   struct{ text string }
	article struct{ Name string }
)

func (l label) Merge(o label) (label, error)            { return label{max(l.text, o.text)}, nil } //nolint:unparam // required by crdt.Data
func (l label) AppendBinary(dst []byte) ([]byte, error) { return append(dst, l.text...), nil }     //nolint:unparam // required by crdt.Data
func (l label) MarshalJSON() ([]byte, error)            { return json.Marshal("label " + l.text) }

// data runs "refold ddata" on a lab.
func (l *lab) data(args ...string) (status int, stdout, stderr string) {
	return l.command(l.t.Context(), "ddata", args...)
}

// want runs "refold ddata" and compares its output.
func (l *lab) want(stdout string, args ...string) {
	l.t.Helper()
	if status, out, stderr := l.data(args...); status != 0 || out != stdout {
		l.t.Errorf("%q: exit status %d, printed\n%s%s\nwant 0 and\n%s", args, status, out, stderr, stdout)
	}
}

func put[T crdt.Data[T]](t *testing.T, r *ddata.Replicator, key string, f func(T) (T, error)) {
	t.Helper()
	if _, err := ddata.Update(t.Context(), r, ddata.Key[T](key), ddata.WriteLocal(), f); err != nil {
		t.Fatal(err)
	}
}

func TestDataCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	types, err := crdt.NewTypes(codec.Types(codec.Name[article]("article")),
		crdt.Define("label", func(data []byte) (label, error) { return label{string(data)}, nil }))
	if err != nil {
		t.Fatal(err)
	}
	var rs []*ddata.Replicator
	for _, name := range []string{"a", "b"} {
		cfg := ddata.Config{Types: types}
		if name == "a" {
			cfg.Durable, cfg.Opener = []string{"visits"}, leveldb.NewDurable(t.TempDir(), leveldb.DurableConfig{})
		}
		r, err := ddata.Start(t.Context(), l.join(name), cfg)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	l.join("c") // a node without a replicator
	l.settled()
	put(t, rs[0], "visits", func(c crdt.PNCounter) (crdt.PNCounter, error) { return c.Add(rs[0].Self(), 7), nil })
	put(t, rs[1], "cart", func(s crdt.ORSet[article]) (crdt.ORSet[article], error) { return s.Add(rs[1].Self(), article{"tea"}) })
	put(t, rs[1], "label", func(label) (label, error) { return label{"new"}, nil })
	put(t, rs[1], "old\n", func(f crdt.Flag) (crdt.Flag, error) { return f.Enable(), nil })
	if err := ddata.Delete(t.Context(), rs[1], ddata.Key[crdt.Flag]("old\n"), ddata.WriteLocal()); err != nil {
		t.Fatal(err)
	}

	_, out, _ := l.data("diff", "--wait", "5m")
	for _, want := range []string{"NODE  DIGEST\na     ", "c     no such replicator\n", "all keys are equal on these 2 nodes"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output\n%s", want, out)
		}
	}
	l.want("KEY     TYPE        DURABLE\ncart    ORSet[any]  no\nlabel   label       no\nvisits  PNCounter   yes\n", "keys", "--ask", "a")
	l.want(`{"key":"old\n","deleted":true}`+"\n", "keys", "--ask", "b", "--json", "--deleted", "o")
	l.want("KEY   TYPE        DURABLE\ncart  ORSet[any]  no\n", "keys", "--limit", "1", "--ask", "b")
	l.want("7\n", "get", "visits", "--level", "majority", "--ask", "b", "--timeout", "10s") // c does not reply, so b queries other nodes after a fifth of the timeout
	l.want(`{"node":"`+rs[1].Node().Self().String()+`","key":"label","type":"label","value":"label new"}`+"\n", "get", "--json", "--ask", "b", "label")
	if _, out, _ := l.data("get", "cart", "--ask", "a"); !strings.Contains(out, `"type": "article"`) || !strings.Contains(out, "tea") {
		t.Errorf("get printed the cart %s, want an article with tea", out)
	}
	for range 5 { // any node may respond, even c, which has no replicator
		if status, out, stderr := l.data("count"); status != 0 || !strings.HasPrefix(out, "3 replicas\n") {
			t.Errorf("count without --ask: exit status %d, printed %s%s; want 0 and 3 replicas", status, out, stderr)
		}
	}
	if status, out, stderr := l.data("keys", "--replicator", "other"); status != 2 || out != "" || !strings.Contains(stderr, `no member has replicator "other"`) {
		t.Errorf("keys of an unknown replicator: exit status %d, printed\n%s%s\nwant 2 and an error about replicator \"other\"", status, out, stderr)
	}
	if status, out, stderr := l.data("diff", "--replicator", "other"); status != 2 || out != "" || !strings.Contains(stderr, `no member has replicator "other"`) {
		t.Errorf("diff of an unknown replicator: exit status %d, printed\n%s%s\nwant 2 and an error about replicator \"other\"", status, out, stderr)
	}
	if _, out, _ := l.data("count", "--ask", "b"); !strings.HasPrefix(out, "3 replicas\n") || !strings.Contains(out, "3 keys, 1 deleted; digest ") {
		t.Errorf("count printed %s, want 3 replicas and 3 keys, 1 of them deleted", out)
	}
	var counted ddata.AdminStat
	if _, out, _ := l.data("count", "--ask", "a", "--json"); json.Unmarshal([]byte(out), &counted) != nil || counted.Replicas != 3 || counted.Keys != 3 {
		t.Errorf("count --json printed %s, want 3 replicas and 3 keys", out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "nothing", "--ask", "a"}, "not found"},
		{[]string{"get", "old\n", "--ask", "a"}, "deleted"},
		{[]string{"get", "visits", "--ask", "c"}, "no such replicator"},
		{[]string{"keys", "--replicator", "other", "--ask", "a"}, "no such replicator"},
		{[]string{"get", "visits", "--level", "all", "--timeout", "4s", "--ask", "a"}, "not enough replicas: 2 of 3 required, 3 in total, no answer from c"},
		{[]string{"keys", "--limit=-1"}, "--limit"},
		{[]string{"diff", "--limit=0"}, "--limit"},
		{[]string{"diff", "--wait=-1s"}, "--wait"},
		{[]string{"--cluster", "", "keys"}, "--cluster"},
		{[]string{"--timeout", "0s", "keys"}, "--timeout"},
		{[]string{"get", "visits", "--level", "most"}, "--level"},
		{[]string{"disk", "keys"}, "--dir"},
	} {
		status, _, stderr := l.data(c.args...)
		for tries := 0; slices.Contains(c.args, "all") && !strings.Contains(stderr, c.want) && tries < 5; tries++ { // retry if b was too busy to reply
			status, _, stderr = l.data(c.args...)
		}
		if status != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit status %d, %s; want 2 and %q", c.args, status, stderr, c.want)
		}
	}
}

// A member that does not respond does not hide the replicator of another one.
func TestDataBesideSilentMember(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("a")
	b := l.join("b")
	if _, err := ddata.Start(t.Context(), l.join("c"), ddata.Config{}); err != nil {
		t.Fatal(err)
	}
	l.settled()
	b.Stop()
	<-b.Done()
	for range 10 { // a or c may respond first
		if status, out, stderr := l.data("count"); status != 0 {
			t.Errorf("count: exit status %d, printed %s%s; want 0", status, out, stderr)
		}
	}
}

// Differences are printed, and the exit status is 1.
func TestDataDiffers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"a", "b"} {
		if _, err := ddata.Start(t.Context(), l.join(name), ddata.Config{Name: "data-" + name}); err != nil {
			t.Fatal(err)
		}
	}
	l.settled()
	if status, out, _ := l.data("diff", "--replicator", "data-a"); status != 0 || !strings.Contains(out, "on these 1 nodes") {
		t.Errorf("diff of one node: exit status %d, printed\n%s\nwant 0 and \"on these 1 nodes\"", status, out)
	}
	var b strings.Builder
	d := &ddata.Diff{
		Nodes: []ddata.DiffNode{{Name: "a", Digest: "aa"}, {Name: "b", Digest: "bb"}, {Name: "c", Err: errors.New("still")}, {Name: "d", Err: ddata.ErrNoReplicator}},
		Keys: []ddata.DiffKey{
			{Key: "k\n", Held: []string{"0123456789abcdef", ddata.DiffDeleted, "", ""}},
			{Key: "x", Held: []string{"", "99", "", ""}},
		},
		More: true,
	}
	var c ddataDiffCommand
	if err := c.print(&b, d); err == nil {
		t.Error("print of differences returned no error")
	}
	want := "NODE  DIGEST\na     aa\nb     bb\nc     still\nd     no such replicator\n\nKEY  A         B\nk\\n  01234567  deleted\nx    -         99\nmore keys differ\n"
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	c.JSON = true
	if err := c.print(&b, d); err == nil || !strings.Contains(b.String(), `{"key":"x","held":{"a":"","b":"99"}}`) || !strings.Contains(b.String(), `"same":false`) || !strings.Contains(b.String(), `"absent":true`) {
		t.Errorf("print of differences as JSON: error %v, printed %s; want an error, the keys, and the absent node", err, b.String())
	}
}

// The data on disk can be inspected without a running node.
func TestDataOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := leveldb.NewDurable(dir, leveldb.DurableConfig{}).Open(t.Context(), durable.ID{Node: "a", Replicator: "ddata"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := program()
	p.Stdout, p.Stderr = &out, &out
	if status := p.Run(t.Context(), []string{"ddata", "disk", "stat", "--dir", dir, "--json"}); status != 0 || !strings.Contains(out.String(), `"keys":0`) {
		t.Errorf("disk stat: exit status %d, printed %s; want 0 and 0 keys", status, &out)
	}
}
