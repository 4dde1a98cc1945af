// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// recorded is a transport.AdminClient with fixed replies by service, command and node. Other requests
// reach a node without the service.
type recorded map[string]string

var errSilent = errors.New("no reply within 10s")

func (r recorded) Ask(_ context.Context, _ string, _ transport.AdminRight, node string, request []byte) ([]byte, error) {
	var q struct{ Service, Command string }
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, err
	}
	if q.Service == "" {
		q.Service = "cluster"
	}
	reply, ok := r[strings.TrimSpace(q.Service+" "+q.Command+" "+node)]
	switch {
	case !ok:
		return []byte(`{"error":"unknown service","no_service":true}`), nil
	case reply == "":
		return nil, errSilent
	}
	return []byte(reply), nil
}

func (recorded) Close() error { return nil }

// threeMembers are a, which has everything, b without an agent, and c, which does not reply.
func threeMembers() recorded {
	const member = `{"node":"%#1","status":"up","up_number":1,"seen":true}`
	var members []string
	for _, name := range []string{"a", "b", "c"} {
		members = append(members, strings.ReplaceAll(member, "%", name))
	}
	return recorded{
		"cluster state":      `{"state":{"cluster":"shop","self":"a#1","leader":"a#1","converged":true,"members":[` + strings.Join(members, ",") + `]}}`,
		"sharding regions a": `{"node":"a#1","regions":[{"type":"account","total":8,"shards":3,"entities":12},{"type":"loan","total":8,"shards":2,"entities":1,"drained":true}]}`,
		"sharding regions b": `{"node":"b#1","regions":[{"type":"account","total":8,"shards":5,"entities":20}]}`,
		"sharding regions c": ``,
		"runtime status a": `{"node":"a#1","runtime":{"go":"go1","memory":104857600,"hosts":true,"journal_breaker_open":true,
			"entities":[{"type":"account","resident":11},{"type":"loan","resident":2}],"load":{"per_second":1234.5,"p50":100000,"p99":2345678}}}`,
		"runtime status c": ``,
		"projection status a": `{"node":"a#1","projections":{"projections":[
			{"name":"totals","state":"running","handled":70,"skipped":1,"lag":1500000000,"rebuilds":true,"workers":[{"slices":"0-1023","state":"running","lag":1500000000}]},
			{"name":"mails","state":"retrying","handled":7,"lag":90000000000,"workers":[{"slices":"0-1023","state":"retrying","lag":90000000000,"failure":{"text":"event 1 of account|7: \u001b[2Jfull"}}]},
			{"name":"idle","state":"not started"},
			{"name":"lost","state":"paused","paused":true,"lag_unknown_since":"2026-01-02T03:04:05Z","workers":[{"slices":"0-1023","state":"stopped"}]}]}}`,
	}
}

// The table and the JSON lines are fixed, because scripts read them.
func TestProjectionsOutput(t *testing.T) {
	t.Parallel()
	var common projectionsCommand
	var out strings.Builder
	if err := (&projectionsListCommand{}).list(t.Context(), &out, &common, newNodes(threeMembers())); !errors.Is(err, operator.ErrProblems) {
		t.Errorf("projections: %v, want ErrProblems", err)
	}
	const want = `PROJECTION  NODE  STATE        LAG      HANDLED  SKIPPED  FAILURE
idle        a     not started  -        0        0        -
lost        a     paused       unknown  0        0        -
mails       a     retrying     1m30s    7        0        event 1 of account|7: \x1b[2Jfull
totals      a     running      1.5s     70       1        -

no reply from c (inspect: status: no reply within 10s)
`
	if out.String() != want {
		t.Errorf("projections printed\n%s\nwant\n%s", &out, want)
	}
	out.Reset()
	if err := (&projectionsListCommand{JSON: true}).list(t.Context(), &out, &common, newNodes(threeMembers())); !errors.Is(err, operator.ErrProblems) {
		t.Errorf("projections --json: %v, want ErrProblems", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[3], `{"node":"a","name":"totals","state":"running","handled":70,`) || !strings.Contains(lines[3], `"lag":1500000000`) {
		t.Errorf("projections --json printed\n%s", &out)
	}
	well := threeMembers()
	well["projection status a"] = `{"node":"a#1","projections":{"projections":[{"name":"totals","state":"running","workers":[{"state":"running"}]}]}}`
	delete(well, "runtime status c")
	if err := (&projectionsListCommand{}).list(t.Context(), &out, &common, newNodes(well)); err != nil {
		t.Errorf("projections without a failure: %v", err)
	}
	delete(well, "projection status a")
	delete(well, "runtime status a")
	if err := (&projectionsListCommand{}).list(t.Context(), &out, &common, newNodes(well)); err == nil || !strings.Contains(err.Error(), "has an agent") {
		t.Errorf("projections without an agent: %v, want an error that names the agent", err)
	}
}

func TestTopOutput(t *testing.T) {
	t.Parallel()
	n := newNodes(threeMembers())
	var out strings.Builder
	if err := (&topCommand{}).look(t.Context(), &out, n); !errors.Is(err, operator.ErrProblems) {
		t.Errorf("top: %v, want ErrProblems", err)
	}
	got := regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(out.String(), "12:34:56")
	const want = `shop, 12:34:56: 3 members, all members agree

NODE  STATUS     SHARDS  ENTITIES  COMMANDS/S  P99     LAG    MEMORY   NOTES
a     up, leads  5       13        1234        2.35ms  1m30s  100 MiB  drained: loan, circuit breaker open, projection fails: mails
b     up         5       20        -           -       -      -        no agent
c     up         -       -         -           -       -      -        inspect: status: no reply within 10s
all              10      33        1234        2.35ms  1m30s  100 MiB  
`
	if got != want {
		t.Errorf("top printed\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	if err := (&topCommand{JSON: true}).look(t.Context(), &out, n); !errors.Is(err, operator.ErrProblems) {
		t.Errorf("top --json: %v, want ErrProblems", err)
	}
	var l struct {
		Nodes []map[string]any
	}
	if err := json.Unmarshal([]byte(out.String()), &l); err != nil || len(l.Nodes) != 3 || l.Nodes[0]["p99"] != 2345678.0 || l.Nodes[1]["p99"] != nil {
		t.Errorf("top --json printed %s, %v", &out, err)
	}
}

// The screen has the lines that fit, and each of them replaces a whole line.
func TestTopScreen(t *testing.T) {
	t.Parallel()
	if got, want := screen("abcdé\nx\n\ny\n", 4, 4), "\x1b[Habcd\x1b[K\r\nx\x1b[K\r\n\x1b[K\r\n\x1b[J"; got != want {
		t.Errorf("screen = %q, want %q", got, want)
	}
}

// "refold top" repeats until it is interrupted, and also prints errors.
func TestTopRepeats(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		c := &topCommand{Interval: time.Millisecond, JSON: asJSON}
		var seen []string
		err := c.repeat(ctx, writer(func(b []byte) {
			if seen = append(seen, string(b)); len(seen) == 2 {
				stop()
			}
		}), newNodes(recorded{"cluster state": ""}))
		stop()
		if err != nil || len(seen) != 2 || !strings.Contains(seen[1], errSilent.Error()) || asJSON && !json.Valid([]byte(seen[1])) {
			t.Errorf("top, JSON %v: %v, %q; want two errors", asJSON, err, seen)
		}
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// agent starts a region of tallies with a projection and an agent on a node.
func (l *lab) agent(n *cluster.Node, j *inmem.Journal) (*sharding.Region[tally], *projection.Projection[counted]) {
	l.t.Helper()
	var meter console.Meter
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil), Observer: meter.Observer()})
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
	r, err := sharding.Host(l.t.Context(), n, rt, tallies("account"), sharding.Options{Shards: 12})
	if err == nil {
		err = r.AwaitReady(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := projection.New(projection.Config[counted]{
		Name: "totals", Journal: j, Criteria: journal.Criteria{Types: []string{"account"}}, Events: tallies("account").Events,
		Handler: projection.AtLeastOnce[counted]{
			Store:  new(projection.Memory),
			Handle: func(context.Context, projection.Envelope[counted]) error { return nil },
			Clear:  func(context.Context) error { return nil },
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	a, err := console.NewAgent(console.AgentConfig{Runtime: rt, Node: n, Meter: &meter, Projections: []console.Projection{p}, AllowActions: true})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		stop()
		if failed := <-ended; !errors.Is(failed, context.Canceled) {
			l.t.Error(failed)
		}
		if failed := a.Close(); failed != nil {
			l.t.Error(failed)
		}
	})
	return r, p
}

// wantCommand runs a command that changes nothing until its output matches.
func (l *lab) wantCommand(name string, status int, args []string, patterns ...string) {
	l.t.Helper()
	for began := time.Now(); ; {
		got, out, stderr := l.command(l.t.Context(), name, args...)
		missing := slices.IndexFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(out + stderr) })
		switch {
		case got == status && missing < 0:
			return
		case time.Since(began) > 3*time.Minute:
			l.t.Fatalf("%s %q: exit status %d, want %d with %q, in\n%s%s", name, args, got, status, patterns, out, stderr)
		}
	}
}

// The commands show and change the projections of a node, and show its load.
func TestProjectionsAndTop(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.join("a")
	l.join("b")
	l.settled()
	l.wantCommand("projections", 2, nil, `no node of cluster "lab" has an agent \(console.NewAgent\); queried: a, b`)
	r, p := l.agent(a, inmem.NewJournal())
	for range 3 {
		if _, err := eventsourcing.Ask(t.Context(), r.Ref("1"), count{}); err != nil {
			t.Fatal(err)
		}
	}
	l.wantCommand("projections", 0, nil, `totals +a +running +0s +3 +0 +-\n$`)
	l.wantCommand("top", 0, []string{"--once"}, `^lab, .*: 2 members, all members agree\n`, `\na +up.* +1 +1 +\d+ +\S+s +0s +\d+ MiB +-\n`, `\nb +up.* no agent\n`)
	for _, act := range []string{"pause", "resume", "rebuild"} {
		paused := p.Paused()
		l.wantCommand("projections", 0, []string{act, "totals"}, `totals +a `, `nothing is changed: add --yes to `+act+` projection "totals"\n$`)
		if p.Paused() != paused {
			t.Errorf("%s without --yes changed the projection", act)
		}
		done := map[string]string{"pause": `projection "totals" is paused`, "resume": `projection "totals" continues`, "rebuild": `the rebuild of projection "totals" is requested`}[act]
		if status, out, stderr := l.command(t.Context(), "projections", act, "totals", "--yes"); status != 0 || out != "a: "+done+"\n" {
			t.Errorf("%s --yes: exit status %d, %s%s; want %q", act, status, out, stderr, "a: "+done)
		}
		if p.Paused() != (act == "pause") {
			t.Errorf("after %s the projection is paused: %v", act, p.Paused())
		}
	}
	l.wantCommand("projections", 0, nil, `totals +a +running +0s +6 +0 +-\n$`) // the rebuild has handled all events again
	l.wantCommand("projections", 2, []string{"pause", "other", "--yes"}, `no responding node has the projection "other"; the projections are: "totals"`)
}
