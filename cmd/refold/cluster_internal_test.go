// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// lab is a cluster in this process, over a real NATS server.
type lab struct {
	t      *testing.T
	server *embedded.Server
	seeds  []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lab{t: t, server: server, seeds: []string{"a"}}
}

// patience is the time limit of each step. It is long enough for a busy machine.
const patience = "2m"

// join starts a node and waits until it is up.
func (l *lab) join(name string) *cluster.Node {
	l.t.Helper()
	n := l.start(name, l.seeds...)
	if err := n.AwaitUp(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *lab) start(name string, seeds ...string) *cluster.Node {
	l.t.Helper()
	self, err := identity.New(name)
	if err != nil {
		l.t.Fatal(err)
	}
	carrier, err := nats.Connect(nats.Config{Access: l.server.Access(), Cluster: "lab", Self: self})
	if err != nil {
		l.t.Fatal(err)
	}
	n, err := cluster.Start(cluster.Config{
		Cluster: "lab", Carrier: carrier, Seeds: seeds, Roles: []string{"teller"}, Version: "1.2.3",
		PhaseTimeout: map[cluster.Phase]time.Duration{ // long enough to leave in order on a busy machine
			cluster.PhaseLeave: 2 * time.Minute, cluster.PhaseStopRegions: 2 * time.Minute, cluster.PhaseExiting: 2 * time.Minute, cluster.PhaseExitingDone: 2 * time.Minute,
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { n.Stop(); <-n.Done() })
	return n
}

// run runs "refold cluster".
func (l *lab) run(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	return l.command(ctx, "cluster", args...)
}

// command runs a command on a lab.
func (l *lab) command(ctx context.Context, name string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := program()
	p.Stdout, p.Stderr = &out, &errs
	all := []string{name, "--cluster", "lab", "--timeout", patience, "--token-file", l.server.TokenFile()}
	if !slices.Contains(args, "--nats") { // a repeated --nats adds servers
		all = append(all, "--nats", l.server.URL())
	}
	status = p.Run(ctx, append(all, args...))
	return status, out.String(), errs.String()
}

// settled runs "refold cluster members" until its exit status is 0 and no member is joining.
func (l *lab) settled(args ...string) string {
	l.t.Helper()
	for {
		status, out, stderr := l.run(l.t.Context(), append([]string{"members"}, args...)...)
		switch {
		case status == 0 && !strings.Contains(out, "joining"):
			return out
		case status == 0:
		case status != 1 || l.t.Context().Err() != nil:
			l.t.Fatalf("members: exit status %d, %s; want 0 or 1", status, stderr)
		}
	}
}

func TestClusterCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.join("a")
	b, c := l.join("b"), l.join("c")

	out := l.settled()
	// UIDs have no leading zeros, so the width of the column depends on the longest UID.
	for _, want := range []string{"MEMBER ", a.Self().String(), b.Self().String() + " +up", "1.2.3", "teller", "leads", "all members agree", "keep-majority"} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in the output\n%s", want, out)
		}
	}
	var s cluster.Summary
	if err := json.Unmarshal([]byte(l.settled("--json", "--ask", "b")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Self != b.Self().String() || len(s.Members) != 3 || s.Leader != a.Self().String() {
		t.Errorf("the view of b is %+v, want 3 members with the leader a", s)
	}

	runs := make(chan struct{})
	if err := a.Singleton(t.Context(), cluster.Singleton{Name: "clock", Role: "teller", Run: func(ctx context.Context, _ *cluster.Inbox) error {
		close(runs)
		<-ctx.Done()
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	<-runs
	if status, out, stderr := l.run(t.Context(), "singletons"); status != 0 || !regexp.MustCompile(`^SINGLETON +ROLE +NODE +SINCE +NOTES\nclock +teller +a +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +-\n$`).MatchString(out) {
		t.Errorf("singletons: exit status %d, printed\n%s%s\nwant 0 and the clock on a", status, out, stderr)
	}
	if status, out, _ := l.run(t.Context(), "singletons", "--json"); status != 0 || !strings.Contains(out, `"name":"clock","role":"teller","node":"a","since":"`) {
		t.Errorf("singletons --json: exit status %d, printed %s; want 0 and the clock on a", status, out)
	}

	if status, out, stderr := l.run(t.Context(), "leave", "--wait", "--ask", "a", "b"); status != 0 || out != "b leaves\nb is gone\n" {
		t.Errorf("leave: exit status %d, printed %q, %s; want 0 and \"b leaves\" and \"b is gone\" on two lines", status, out, stderr)
	}
	if _, member := a.State().Member(b.Self()); member {
		t.Error("b is still a member after leave --wait, want b removed")
	}
	<-b.Done()
	if status, _, stderr := l.run(t.Context(), "down", c.Self().String()); status != 0 {
		t.Errorf("down: exit status %d, %s; want 0", status, stderr)
	}
	<-c.Done()
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "left") {
		t.Errorf("b ended with the error %v, want one about leaving", err)
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "downed") {
		t.Errorf("c ended with the error %v, want one about downing", err)
	}
	for _, command := range [][]string{{"down", "nobody"}, {"leave", "nobody"}, {"leave", "--wait", "nobody"}} {
		if status, _, stderr := l.run(t.Context(), command...); status != 2 || !strings.Contains(stderr, "not a member: nobody") || strings.Contains(stderr, "#") {
			t.Errorf("%q: exit status %d, %s; want 2 and \"not a member: nobody\" without a UID", command, status, stderr)
		}
	}
	if status, out, stderr := l.run(t.Context(), "leave", "--wait", "--wait-timeout", "5m", a.Self().String()); status != 0 || !strings.Contains(out, "is gone") {
		t.Errorf("leave of the last member: exit status %d, %s%s; want 0 and \"is gone\"", status, out, stderr)
	}
	<-a.Done()
}

// Nodes that were started without seeds form a cluster when an operator orders them to.
func TestClusterJoin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b, c := l.start("a"), l.start("b"), l.start("c")
	for _, test := range []struct {
		args []string
		want string // in the error
	}{
		{[]string{"b"}, "expected either SEED or --found"},
		{[]string{"b", "a", "--found"}, "expected either SEED or --found"},
		{[]string{"b", "b"}, "cannot join through itself"},
		{[]string{"b", "a"}, "no node"}, // no member can answer
		{[]string{"x", "--found"}, "no node"},
	} {
		if status, _, stderr := l.run(t.Context(), append([]string{"join"}, test.args...)...); status != 2 || !strings.Contains(stderr, test.want) {
			t.Errorf("join %q: exit status %d, %s; want 2 and %q", test.args, status, stderr, test.want)
		}
	}
	for _, name := range []string{"a", "b", "c"} { // operators reach a node soon after its start
		for status := 2; status == 2 && t.Context().Err() == nil; {
			status, _, _ = l.run(t.Context(), "members", "--ask", name)
		}
	}
	if status, out, stderr := l.run(t.Context(), "join", "--wait", "a", "--found"); status != 0 || out != "a founds the cluster\na is a member\n" {
		t.Fatalf("join --found: exit status %d, printed %q, %s; want 0 and two lines", status, out, stderr)
	}
	if status, _, stderr := l.run(t.Context(), "join", "b", "c"); status != 2 || !strings.Contains(stderr, "not a member: c") {
		t.Errorf("join through a node that has not joined: exit status %d, %s; want 2 and \"not a member: c\"", status, stderr)
	}
	if b.State().Joined {
		t.Fatal("b is a member after rejected commands")
	}
	if status, out, stderr := l.run(t.Context(), "join", "--wait", "b", "a"); status != 0 || out != "b joins through a\nb is a member\n" {
		t.Fatalf("join: exit status %d, printed %q, %s; want 0 and two lines", status, out, stderr)
	}
	if status, _, stderr := l.run(t.Context(), "join", "c", "b"); status != 0 {
		t.Fatalf("join of c: exit status %d, %s; want 0", status, stderr)
	}
	for _, n := range []*cluster.Node{a, b, c} {
		if err := n.AwaitUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, member := a.State().Member(b.Self()); !member {
		t.Error("b is not a member in the state of a")
	}
}

func TestClusterWatch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("a")
	ctx, cancel := context.WithCancel(t.Context())
	out := &follower{seen: make(chan string, 100)}
	p := program()
	p.Stdout, p.Stderr = out, out
	done := make(chan int)
	go func() {
		done <- p.Run(ctx, []string{"cluster", "--cluster", "lab", "--nats", l.server.URL(), "--timeout", patience, "--token-file", l.server.TokenFile(), "members", "--watch", "--interval", "20ms"})
	}()
	out.until(t, "a#")
	l.join("b")
	out.until(t, "b#")
	cancel()
	if status := <-done; status != 0 {
		t.Errorf("members --watch: exit status %d, want 0", status)
	}
}

// follower is a writer that sends the written text to a channel.
type follower struct{ seen chan string }

func (f *follower) Write(b []byte) (int, error) {
	f.seen <- string(b)
	return len(b), nil
}

func (f *follower) until(t *testing.T, subject string) {
	t.Helper()
	for {
		select {
		case s := <-f.seen:
			if strings.Contains(s, subject) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("the test ended before members --watch printed %q", subject)
		}
	}
}

func TestClusterFailures(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no reply":             {[]string{"--timeout", "300ms", "members"}, "lab"},
		"invalid cluster name": {[]string{"--cluster", "a.b", "members"}, "a.b"},
		"no cluster name":      {[]string{"--cluster", "", "members"}, "--cluster"},
		"invalid timeout":      {[]string{"--timeout", "-1s", "members"}, "--timeout"},
		"invalid interval":     {[]string{"members", "--interval", "1ns"}, "--interval"},
		"missing token file":   {[]string{"--token-file", "/nowhere", "members"}, "/nowhere"},
		"unreachable server":   {[]string{"--nats", "nats://127.0.0.1:1", "members"}, "no servers"},
		"no credentials":       {[]string{"--token-file", "", "members"}, "--token-file"},
		"invalid wait timeout": {[]string{"leave", "x", "--wait-timeout", "-1s"}, "--wait-timeout"},
		"server address":       {[]string{"--token-file", "", "members"}, l.server.URL()},
		"unnamed lease":        {[]string{"--cluster", "", "lease-bucket"}, "--cluster is missing"},
		"lease without token":  {[]string{"--token-file", "", "lease-bucket"}, "--token-file"},
		"read-only node":       {[]string{"nats-permissions", "node", "x", "--read-only"}, "--read-only"},
		"service of a node":    {[]string{"nats-permissions", "node", "x", "--service", "inspect"}, "--service"},
		"read-only leases":     {[]string{"nats-permissions", "operator", "x", "--read-only", "--lease-timeout", "9s"}, "--read-only"},
		"invalid lease":        {[]string{"lease-bucket", "--lease-timeout", "1ms"}, "Timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, _, stderr := l.run(t.Context(), c.args...); status != 2 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit status %d, %s; want 2 and %q", status, stderr, c.want)
			}
		})
	}
}

func TestClusterPermissions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for peer, want := range map[string]string{"node": "refold.lab.control.x.*.*", "operator": "refold.lab.admin.act.sharding.*.x"} {
		if status, out, stderr := l.run(t.Context(), "nats-permissions", peer, "x"); status != 0 || !strings.Contains(out, want) {
			t.Errorf("permissions of a %s: exit status %d, %s%s; want 0 and %q", peer, status, out, stderr, want)
		}
	}
	if status, out, stderr := l.run(t.Context(), "nats-permissions", "operator", "x", "--read-only"); status != 0 || !strings.Contains(out, "refold.lab.admin.read.cluster.*.x") || strings.Contains(out, "admin.act") || strings.Contains(out, "inspect") {
		t.Errorf("permissions of an operator with --read-only: exit status %d, %s%s; want 0 and the subjects of reads only", status, out, stderr)
	}
	if _, out, _ := l.run(t.Context(), "nats-permissions", "operator", "x", "--read-only", "--service", "inspect"); !strings.Contains(out, "refold.lab.admin.read.inspect.*.x") || strings.Contains(out, "sharding") {
		t.Errorf("permissions of an operator with --service inspect: got\n%s\nwant the subjects of this service only", out)
	}
	for peer, want := range map[string]string{"node": "$KV.refold_lease_lab_10000.*", "operator": "$JS.API.STREAM.CREATE.KV_refold_lease_lab_10000"} {
		if _, out, _ := l.run(t.Context(), "nats-permissions", peer, "x", "--lease-timeout", "10s"); !strings.Contains(out, want) {
			t.Errorf("permissions of a %s with --lease-timeout: got\n%s\nwant the subject %s", peer, out, want)
		}
	}
}

// An operator creates the bucket of the leases. A second call changes nothing.
func TestClusterLeaseBucket(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 2 {
		if status, out, stderr := l.run(t.Context(), "lease-bucket", "--lease-timeout", "10s"); status != 0 {
			t.Fatalf("lease-bucket: exit status %d, %s%s; want 0", status, out, stderr)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leases, err := nats.OpenLeases(ctx, nats.LeasesConfig{Access: l.server.Access(), Cluster: "lab", Name: "a", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err = leases.Close(); err != nil {
		t.Error(err)
	}
}
