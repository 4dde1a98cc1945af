// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A tally counts its commands.
type (
	count struct {
		eventsourcing.Command[tally, int]
	}
	counted struct{ By int }
	tally   struct{ n int }
)

func (t *tally) count(ctx *eventsourcing.Context[tally, counted, int], _ count) eventsourcing.Decision[tally, counted, int] {
	return ctx.Persist(counted{1}).ReplyFunc(func() int { return t.n })
}

func (t *tally) apply(e counted) { t.n += e.By }

func tallies(name string) eventsourcing.Type[tally, counted] {
	return eventsourcing.Type[tally, counted]{
		Name: name, Apply: (*tally).apply, Events: codec.Types(codec.Name[counted]("counted")),
		Commands: eventsourcing.Commands(eventsourcing.On("count", (*tally).count)),
	}
}

// region starts a region of tallies on a node.
func (l *lab) region(n *cluster.Node, j *inmem.Journal, name string, opts sharding.Options) *sharding.Region[tally] {
	l.t.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil)})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		n.Stop()
		<-n.Done()
		if failed := rt.Close(context.Background()); failed != nil {
			l.t.Error(failed)
		}
	})
	r, err := sharding.Host(l.t.Context(), n, rt, tallies(name), opts)
	if err == nil {
		err = r.AwaitReady(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// wantShards runs "refold shards" and requires patterns in its output. It repeats a command that
// changes nothing until the output matches, because the nodes receive a move at different times.
func (l *lab) wantShards(status int, args []string, patterns ...string) string {
	l.t.Helper()
	changes := slices.ContainsFunc(args, func(arg string) bool {
		return slices.Contains([]string{"drain", "undrain", "rebalance", "move", "release"}, arg)
	})
	for began := time.Now(); ; {
		got, out, stderr := l.command(l.t.Context(), "shards", args...)
		missing := slices.IndexFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(out + stderr) })
		switch {
		case got == status && missing < 0:
			return out
		case changes || time.Since(began) > 3*time.Minute:
			l.t.Errorf("%q: exit status %d, want %d with %q, in\n%s%s", args, got, status, patterns, out, stderr)
			return out
		}
	}
}

func TestShardsCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b, c := l.join("a"), l.join("b"), l.join("c")
	l.settled()
	l.wantShards(2, nil, `no node of cluster "lab" has sharded entities; queried: a, b, c`)
	j := inmem.NewJournal()
	opts := sharding.Options{Shards: 12, Tuning: sharding.Tuning{RebalanceInterval: time.Hour, RetryInterval: 200 * time.Millisecond}}
	ra := l.region(a, j, "account", opts)
	for i := range 20 {
		if _, err := eventsourcing.Ask(t.Context(), ra.Ref(fmt.Sprint("acc-", i)), count{}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := ra.ShardOf("acc-7")
	if err != nil {
		t.Fatal(err)
	}
	l.wantShards(0, nil, `NODE  SHARDS  ENTITIES  WAITING  DROPPED  NOTES`, `a     \d+ +20 +0 +0 +runs the coordinator\n`, `account: \d+ of 12 shards, 20 entities; coordinator on a, active, term 1\n`)
	l.wantShards(2, []string{"drain", "--node", "a"}, `no other responding node can host shards of "account": the others are drained, leaving, refused or proxies; commands for its \d+ shards would wait`)

	l.region(b, j, "account", opts)
	for began, moved := time.Now(), false; !moved; { // retry: no shard moves while a member is unreachable, as may happen on a busy machine
		moved = !strings.HasPrefix(l.wantShards(0, []string{"rebalance", "--wait"}, `^\d+ shards of account have moved\n`), "0 ")
		if !moved && time.Since(began) > 3*time.Minute {
			t.Fatal("timed out after 3m: rebalance has moved no shard")
		}
	}
	l.wantShards(0, []string{"rebalance"}, `^0 shards of account move: they are balanced, or members are unreachable, joining or of different versions\n`)
	var s spread
	if out := l.wantShards(0, []string{"list", "--json"}, `"name":"b"[^}]*"shards":[4-9]`); json.Unmarshal([]byte(out), &s) != nil || len(s.Nodes) != 2 || s.Nodes[1].Shards < 4 || s.Coordinator != "a" || s.CoordinatorState == nil || s.Total != 12 {
		t.Errorf("list --json printed %s, want 2 nodes, at least 4 of 12 shards on b, and the coordinator on a", out)
	}
	l.wantShards(2, []string{"move", fmt.Sprint(n), "c"}, `refold: .*cannot move the shard: cannot pin the shard to node "c": it does not host type "account"`)
	l.wantShards(2, []string{"release", fmt.Sprint(n)}, `refold: .*shard \d+ of type "account" is not pinned`)
	l.wantShards(0, []string{"move", fmt.Sprint(n), "b", "--wait"}, fmt.Sprintf(`^shard %d of account is on b and stays there until it is released\n$`, n))
	l.wantShards(0, nil, fmt.Sprintf(`term 1\n\nMOVED SHARD +TO +NOW ON\n%d +b +b\n$`, n))
	l.wantShards(0, []string{"release", fmt.Sprint(n)}, fmt.Sprintf(`^the allocation strategy may move shard %d of account\n$`, n))
	l.wantShards(0, []string{"drain", "--node", "a", "--wait"}, `^a is draining shards of account\na hosts no more shards of account\n`)
	l.wantShards(0, nil, `a     0       0         0        0        runs the coordinator, drained\nb +\d+ +0`)
	l.wantShards(2, []string{"drain", "--node", "b"}, `no other responding node can host shards of "account"`)
	l.wantShards(0, []string{"find", "--type", "account", "acc-7"}, fmt.Sprintf(`^account acc-7 is in shard %d, on b, not running\n$`, n))
	for i := range 20 { // node a reaches the entities without hosting them
		if _, err := eventsourcing.Ask(t.Context(), ra.Ref(fmt.Sprint("acc-", i)), count{}); err != nil {
			t.Fatal(err)
		}
	}
	l.wantShards(0, []string{"find", "--type", "account", "acc-7"}, fmt.Sprintf(`^account acc-7 is in shard %d, on b, running\n$`, n))
	l.wantShards(0, []string{"find", "--type", "account", "acc-7", "--json"}, fmt.Sprintf(`^{"type":"account","id":"acc-7","shard":%d,"node":"b","running":true}\n$`, n))
	l.wantShards(0, []string{"entities"}, `^SHARD  NODE  ENTITIES  COMMANDS/S\n`, fmt.Sprintf(`\n%d +b +\d+ +unknown\n`, n))
	l.wantShards(0, []string{"entities", fmt.Sprint(n)}, `^ENTITY +NODE\n`, `acc-7 +b\n`)
	l.wantShards(0, []string{"entities", "--json", fmt.Sprint(n)}, fmt.Sprintf(`"id":"acc-7","shard":%d,"node":"b"}\n`, n))
	l.wantShards(0, []string{"entities", "--limit", "1", "--json"}, `^{"type":"account","shard":\d+,"node":"b","entities":\d+}\n.*more lines follow`)
	l.wantShards(0, []string{"entities", "--type", "account", "--node", "b", fmt.Sprint(n)}, `acc-7 +b\n`)
	l.wantShards(0, []string{"entities", "--node", "a", fmt.Sprint(n)}, fmt.Sprintf(`^shard %d is not on a\n`, n))
	l.wantShards(2, []string{"entities", "12"}, `^refold: no shard 12: "account" has 12`)

	var rc *sharding.Region[tally]
	for _, n := range []*cluster.Node{a, b, c} { // the oldest node runs the coordinator
		rc = l.region(n, j, "loan", sharding.Options{Shards: 3, Tuning: sharding.Tuning{RetryInterval: 200 * time.Millisecond}})
	}
	l.wantShards(0, []string{"--type", "loan", "entities", "2"}, `^shard 2 is not allocated\n$`)
	l.wantShards(0, []string{"find", "--type", "loan", "x"}, `^loan x is in shard \d, which is not allocated`)
	if _, err := eventsourcing.Ask(t.Context(), rc.Ref("x"), count{}); err != nil {
		t.Fatal(err)
	}
	l.wantShards(0, nil, `account: `, `loan: 1 of 3 shards, 1 entities; coordinator on a`)
	l.wantShards(0, []string{"--type", "loan", "entities"}, `[abc] +1 +unknown\n`)
	for _, bad := range []struct {
		args []string
		want string
	}{
		{[]string{"entities"}, `several entity types exist, select one with --type: "account", "loan"`},
		{[]string{"rebalance"}, `several entity types exist`},
		{[]string{"--type", "card", "list"}, `no entity type "card"; the types are: "account", "loan"`},
		{[]string{"find", "--type", "card", "1"}, `no entity type "card"`},
		{[]string{"find", "1"}, `several entity types exist, select one with --type: "account", "loan"`},
		{[]string{"find", "--type", "account", ""}, `it is required, as in: shards find --type account 42`},
		{[]string{"entities", "--type", "account", "--node", "nobody"}, `no member "nobody"; the members are: "a", "b", "c"`},
		{[]string{"drain"}, `--node`},
		{[]string{"drain", "--node", "nobody"}, `no member "nobody"; the members are: "a", "b", "c"`},
		{[]string{"drain", "--type", "account", "--node", "c"}, `c hosts no shards of "account"`},
		{[]string{"--cluster", "", "list"}, "--cluster"},
		{[]string{"--timeout", "0s", "list"}, "--timeout"},
		{[]string{"list", "--interval", "1ms"}, "--interval"},
		{[]string{"entities", "--limit=-1"}, "--limit"},
		{[]string{"drain", "--node", "a", "--wait-timeout", "0s"}, "--wait-timeout"},
		{[]string{"rebalance", "--wait-timeout", "0s"}, "--wait-timeout"},
		{[]string{"--cluster", "empty", "list"}, "no node answers"},
	} {
		l.wantShards(2, bad.args, bad.want)
	}
}

// Problems are printed, and the exit status is 1.
func TestShardsWithProblems(t *testing.T) {
	t.Parallel()
	region := func(r sharding.AdminRegion) []sharding.AdminRegion {
		r.Type, r.Total = "t", 9
		return []sharding.AdminRegion{r}
	}
	all := make([]shardNode, 4)
	for i, n := range []sharding.AdminNode{
		{Name: "a", Err: errors.New("no\nanswer")},
		{Name: "b", Err: sharding.ErrNoRegion},
		{Name: "c", Regions: region(sharding.AdminRegion{Proxy: true, Waiting: 3, Dropped: 4})},
		{Name: "d", Regions: region(sharding.AdminRegion{Shards: 2, Entities: 5, Drained: true, Coordinator: "c#1"})},
	} {
		all[i].AdminNode = n
	}
	s := spreadOf(all, "t")
	var b strings.Builder
	if err := s.print(&b); err != nil || s.well() {
		t.Errorf("print = %v, well = true; want problems", err)
	}
	want := `NODE  SHARDS  ENTITIES  WAITING  DROPPED  NOTES
a     -       -         -        -        no\nanswer
c     0       0         3        4        proxy, not registered with a coordinator
d     2       5         0        0        draining

t: 2 of 9 shards, 5 entities; no coordinator
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	all[0].Err = sharding.ErrNoRegion
	if spreadOf(all, "t").well() {
		t.Error("well = true without a coordinator, want false")
	}
	all[3].Regions[0].CoordinatorState = &sharding.AdminCoordinator{Term: 3, Phase: "active", Moving: 2, Moves: []sharding.AdminMove{
		{Shard: 4, Step: "starting", From: "d", To: "c", Since: time.Date(2026, 5, 1, 9, 30, 0, 0, time.UTC)}, {Shard: 7, Step: "stopping", From: "d", Since: time.Date(2026, 5, 1, 9, 31, 0, 0, time.UTC)},
	}}
	b.Reset()
	s = spreadOf(all, "t")
	if err := s.print(&b); err != nil || !s.well() || !strings.Contains(b.String(), "coordinator on d, active, term 3; 2 are moving\n") {
		t.Errorf("print = %v, well = %v, printed\n%s\nwant no problems and a coordinator on d", err, s.well(), b.String())
	}
	want = `
SHARD IN MOTION  FROM  TO  STEP      SINCE
4                d     c   starting  2026-05-01T09:30:00Z
7                d     -   stopping  2026-05-01T09:31:00Z
`
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("printed\n%s\nwant the moves\n%s", b.String(), want)
	}
}

// --watch prints changes until its context ends.
func TestShardsWatch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.join("a")
	r := l.region(a, inmem.NewJournal(), "account", sharding.Options{Shards: 4})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &follower{make(chan string, 1000)}
	p := operator.Program{Commands: program().Commands, Stdout: out, Stderr: out}
	done := make(chan int)
	go func() {
		done <- p.Run(ctx, []string{"shards", "--cluster", "lab", "--timeout", patience, "--token-file", l.server.TokenFile(), "--nats", l.server.URL(), "--watch", "--interval", "10ms"})
	}()
	out.until(t, "0 of 4 shards")
	if _, err := eventsourcing.Ask(t.Context(), r.Ref("x"), count{}); err != nil {
		t.Fatal(err)
	}
	out.until(t, "1 of 4 shards, 1 entities")
	stop()
	if status := <-done; status != operator.ExitOK {
		t.Errorf("shards --watch: exit status %d, want %d", status, operator.ExitOK)
	}
}
