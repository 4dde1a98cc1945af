// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/plugins/leveldb"
)

// article is an element that a registry names.
type article struct {
	Name  string
	Price int
}

// mark is an application-specific data type.
type mark struct{ set bool }

func (m mark) Merge(other mark) (mark, error) { return mark{m.set || other.set}, nil }

func (m mark) AppendBinary(dst []byte) ([]byte, error) {
	if m.set {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

func (m mark) MarshalJSON() ([]byte, error) { return []byte(`"marked"`), nil }

func markTypes(t *testing.T) *crdt.Types {
	t.Helper()
	types, err := crdt.NewTypes(codec.Types(codec.Name[article]("article")),
		crdt.Define("mark", func(data []byte) (mark, error) { return mark{len(data) == 1 && data[0] == 1}, nil }))
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// must2 returns a function that returns a value and ends the test if there is an error.
func must2[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// replicated creates a directory with the data of two nodes.
func replicated(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	types := markTypes(t)
	a := identity.Node{Name: "a:1", UID: 0xa}
	self := must2[*crdt.Self](t)(crdt.NewSelf(a))
	d := leveldb.NewDurable(dir, leveldb.DurableConfig{})
	value := func(v any) replication.Record {
		held := must2[crdt.Value](t)(types.Value(v))
		return replication.Record{Value: must2[[]byte](t)(held.AppendBinary(nil))}
	}
	articles := must2[crdt.ORSet[article]](t)(crdt.With(types, crdt.ORSet[article]{}))
	pruned := value(crdt.PNCounter{}.Add(self, -3))
	pruned.Pruning = []replication.Marker{{Removed: identity.Node{Name: "c", UID: 0xc}, Performed: true, Obsolete: 1 << 40}}
	for id, records := range map[durable.ID]map[string]replication.Record{
		{Node: "a:1", Replicator: "Carts"}: {
			"cart-1": value(must2[crdt.ORSet[article]](t)(articles.Add(self, article{"tea", 3}))),
			"cart-2": {Deleted: true},
			"mark":   value(mark{true}),
			"visits": pruned,
		},
		{Node: "b:1", Replicator: "Carts"}: {"visits": value(crdt.PNCounter{}.Add(self, 4))},
	} {
		s := must2[durable.Store](t)(d.Open(t.Context(), id))
		for key, r := range records {
			if err := s.Write(t.Context(), []durable.Record{{Key: key, Data: replication.AppendRecord(nil, r)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ddata runs one of the commands.
func ddata(t *testing.T, types *crdt.Types, args ...string) outcome {
	t.Helper()
	p := operator.Program{Commands: []operator.Command{{Name: "ddata", Help: "Inspect replicated data.", Grammar: &operator.Durable{Types: types}}}}
	return start(t, p, append([]string{"ddata"}, args...)...)
}

func TestDurableKeys(t *testing.T) {
	t.Parallel()
	dir := replicated(t)
	o := ddata(t, nil, "keys", "--dir", dir)
	o.want(t, operator.ExitOK, "")
	want := `NODE  REPLICATOR  KEY     TYPE        BYTES
a:1   Carts       cart-1  ORSet[any]  54
a:1   Carts       cart-2  deleted     3
a:1   Carts       mark    unknown     15
a:1   Carts       visits  PNCounter   43
b:1   Carts       visits  PNCounter   25
`
	if o.stdout != want {
		t.Errorf("keys printed\n%s\nwant\n%s", o.stdout, want)
	}
	o = ddata(t, markTypes(t), "keys", "--dir", dir, "--node", "a:1", "--replicator", "Carts", "--json", "ma")
	o.want(t, operator.ExitOK, "")
	if want := `{"node":"a:1","replicator":"Carts","key":"mark","type":"mark","bytes":15}` + "\n"; o.stdout != want {
		t.Errorf("keys --json printed %s, want %s", o.stdout, want)
	}
	o = ddata(t, nil, "keys", "--dir", dir, "--limit", "2", "--json")
	o.want(t, operator.ExitOK, `more keys follow, from "mark" of Carts of a:1`)
	if strings.Count(o.stdout, "\n") != 2 {
		t.Errorf("keys --limit 2 printed %s, want 2 lines", o.stdout)
	}
}

func TestDurableGet(t *testing.T) {
	t.Parallel()
	dir := replicated(t)
	for name, c := range map[string]struct {
		types *crdt.Types
		args  []string
		want  string
	}{
		"all nodes": {nil, []string{"visits"}, "# Carts of a:1, PNCounter\n-3\n# Carts of b:1, PNCounter\n4\n"},
		"as JSON": {
			nil,
			[]string{"visits", "--json", "--node", "a:1"},
			`{"node":"a:1","replicator":"Carts","key":"visits","type":"PNCounter","bytes":43,"nodes":["a:1#a"],"pruned":["c#c"],"value":-3}` + "\n",
		},
		"named elements": {nil, []string{"cart-1"}, "# Carts of a:1, ORSet[any]\n[\n  {\n    \"type\": \"article\",\n    \"value\": {\n      \"Name\": \"tea\",\n      \"Price\": 3\n    }\n  }\n]\n"},
		"deleted":        {nil, []string{"cart-2"}, "# Carts of a:1, deleted\n"},
		"deleted, JSON":  {nil, []string{"cart-2", "--json"}, `{"node":"a:1","replicator":"Carts","key":"cart-2","deleted":true,"bytes":3}` + "\n"},
		"unknown type":   {nil, []string{"mark", "--json"}, `{"node":"a:1","replicator":"Carts","key":"mark","bytes":15,"value":{"base64":"BASE64"}}` + "\n"},
		"known type":     {markTypes(t), []string{"mark"}, "# Carts of a:1, mark\n\"marked\"\n"},
	} {
		o := ddata(t, c.types, append([]string{"get", "--dir", dir}, c.args...)...)
		o.want(t, operator.ExitOK, "")
		if got := regexp.MustCompile(`"base64":"[^"]+"`).ReplaceAllString(o.stdout, `"base64":"BASE64"`); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	ddata(t, nil, "get", "--dir", dir, "nothing", "--node", "b:1").want(t, operator.ExitFailed, `no key "nothing" in "`+dir+`" of node "b:1"`)
}

func TestDurableStat(t *testing.T) {
	t.Parallel()
	dir := replicated(t)
	if err := os.MkdirAll(filepath.Join(dir, "b+1", "empty"), 0o750); err != nil {
		t.Fatal(err)
	}
	o := ddata(t, nil, "stat", "--dir", dir, "--json")
	o.want(t, operator.ExitOK, "")
	got := regexp.MustCompile(`"disk":[1-9]\d+`).ReplaceAllString(strings.ReplaceAll(o.stdout, dir+string(filepath.Separator), ""), `"disk":N`)
	want := `{"node":"a:1","replicator":"Carts","dir":"a+1/carts=80","keys":3,"deleted":1,"unknown":1,"problems":0,"bytes":137,"disk":N,"largest":"cart-1","largest_bytes":54}
{"node":"b:1","replicator":"Carts","dir":"b+1/carts=80","keys":1,"deleted":0,"unknown":0,"problems":0,"bytes":31,"disk":N,"largest":"visits","largest_bytes":25}
`
	if filepath.ToSlash(got) != want {
		t.Errorf("stat printed\n%s\nwant\n%s", got, want)
	}
}

func TestDurableProblems(t *testing.T) {
	t.Parallel()
	dir := replicated(t)
	id := durable.ID{Node: "b:1", Replicator: "Carts"}
	s := must2[durable.Store](t)(leveldb.NewDurable(dir, leveldb.DurableConfig{}).Open(t.Context(), id))
	ddata(t, nil, "stat", "--dir", dir).want(t, operator.ExitFailed, "in use")
	for key, data := range map[string]string{"garbage": "\x01\x02\x03", "later": "\x09", "no value": "\x01\x00\x00\x01\x09\x00"} {
		if err := s.Write(t.Context(), []durable.Record{{Key: key, Data: []byte(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"keys"}, {"stat"}, {"get", "garbage"}, {"get", "later"}} {
		text := `Carts of b:1: key "garbage"`
		if args[len(args)-1] == "later" {
			text = "unknown record version 9, want 1"
		}
		ddata(t, nil, append(args, "--dir", dir)...).want(t, operator.ExitProblems, text)
	}
	empty := t.TempDir()
	ddata(t, nil, "keys", "--dir", empty, "--node", "x").want(t, operator.ExitFailed, "no durable data in \""+empty+"\" of node \"x\"")
	ddata(t, nil, "keys", "--dir", filepath.Join(empty, "none")).want(t, operator.ExitFailed, "no such file")
	ddata(t, nil, "keys", "--dir", empty, "--limit=-1").want(t, operator.ExitFailed, "--limit is -1")
	ddata(t, nil, "keys").want(t, operator.ExitFailed, "--dir")
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("the commands created %v, error %v; want no files", left, err)
	}
}
