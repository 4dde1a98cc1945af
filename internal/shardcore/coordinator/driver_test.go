// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// driver drives one coordinator step by step. It answers AskStrategy with LeastShards, and performs saves unless hold is set.
type driver struct {
	t          *testing.T
	m          *coordinator.Machine
	now        time.Duration
	hold       bool              // Save is not answered
	mute       bool              // AskStrategy is not answered
	still      []string          // nodes that do not respond to probes
	followed   map[string]string // the positions of standbys in the responses of other nodes
	state      coordinator.State
	rev        uint64
	remembered []shard

	load      uint64
	save      *coordinator.Save
	add       *coordinator.AddShards
	ask       *coordinator.AskStrategy
	rebalance *coordinator.AskRebalance
	out       []string
	notes     []coordinator.Note
	changes   []coordinator.Change
	shutDown  bool
	stopped   coordinator.Reason
}

func drive(t *testing.T, cfg coordinator.Config, events ...event) *driver {
	t.Helper()
	cfg.Self, cfg.Type = node("a"), "account"
	m, err := coordinator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &driver{t: t, m: m, state: apply(t, events...), rev: uint64(len(events))}
}

// active drives a coordinator on node a until it is active.
func active(t *testing.T, cfg coordinator.Config, members string, events ...event) *driver {
	t.Helper()
	d := drive(t, cfg, events...)
	d.members(members)
	d.loaded()
	d.pass(500 * time.Millisecond)
	if d.m.Phase() != coordinator.Active {
		t.Fatalf("the phase is %v, want active", d.m.Phase())
	}
	for _, r := range d.state.Regions() {
		d.receive(r.Node.Name, coordinator.Message{Kind: coordinator.Register})
		d.receive(r.Node.Name, coordinator.Message{Kind: coordinator.Hosted, Round: d.round(r.Node.Name), Shards: r.Shards})
	}
	for _, n := range d.state.Proxies() {
		d.receive(n.Name, coordinator.Message{Kind: coordinator.RegisterProxy})
	}
	d.sent()
	d.changes = nil
	return d
}

// round returns the round of the last message with shards to a node.
func (d *driver) round(to string) uint64 {
	d.t.Helper()
	for _, line := range slices.Backward(d.out) {
		var round uint64
		if at := strings.Index(line, "@"); strings.HasPrefix(line, to+" ") && at > 0 {
			if _, err := fmt.Sscan(line[at+1:], &round); err != nil {
				d.t.Fatal(err)
			}
			return round
		}
	}
	return 0
}

// members sets the members, each named by a letter: with status Up, or with a given status, such as
// b=leaving.
func (d *driver) members(names string, removed ...coordinator.Removal) {
	d.t.Helper()
	in := coordinator.Members{Removed: removed}
	for i, text := range strings.Fields(names) {
		name, status, _ := strings.Cut(text, "=")
		m := identity.Member{Node: node(name), Status: identity.Up, UpNumber: int32(i)}
		for s := identity.Joining; s <= identity.ReadyForShutdown; s++ {
			if s.String() == status {
				m.Status = s
			}
		}
		if status == "entities" {
			m.Roles = []string{"entities"}
		}
		in.Members = append(in.Members, m)
	}
	d.step(in)
}

func (d *driver) loaded() {
	d.step(coordinator.Loaded{ID: d.load, State: d.state, Rev: d.rev, Remembered: d.remembered})
}

func (d *driver) step(in coordinator.Input) { d.apply(d.m.Step(d.now, in)) }

// pass advances the time, with a tick whenever one is due.
func (d *driver) pass(by time.Duration) {
	for end := d.now + by; ; {
		next := d.m.Next()
		if next > end {
			d.now = end
			return
		}
		d.now = max(d.now, next)
		d.apply(d.m.Tick(d.now))
		if d.m.Next() <= d.now {
			d.t.Fatalf("after Tick(%v): Next() = %v, want a later time", d.now, d.m.Next())
		}
	}
}

func (d *driver) receive(from string, m coordinator.Message) {
	if m.Type == "" {
		m.Type = "account"
	}
	m.Instance = max(1, m.Instance)
	switch m.Kind {
	case coordinator.GetHomes, coordinator.Hosted, coordinator.BeginHandOffAck, coordinator.Stopped:
		if m.Term == 0 {
			m.Term = d.m.Term()
		}
	default:
	}
	d.step(coordinator.Received{From: node(from), Message: m})
}

func (d *driver) get(from string, shards ...shard) {
	d.receive(from, coordinator.Message{Kind: coordinator.GetHomes, Shards: shards})
}

func (d *driver) apply(e coordinator.Effects) {
	d.notes = append(d.notes, e.Notes...)
	var probed []coordinator.Outgoing // answered at the end
	defer func() {
		for _, o := range probed {
			d.receive(o.To.Name, coordinator.Message{Kind: coordinator.Hosted, Instance: o.Message.Instance, Round: o.Message.Round, Followed: d.followed[o.To.Name]})
		}
	}()
	if e.Load != 0 {
		d.load = e.Load
	}
	if e.AddShards != nil {
		d.add = e.AddShards
	}
	if e.Rebalance != nil {
		d.rebalance = e.Rebalance
	}
	for _, o := range e.Send {
		if o.Message.Term != d.m.Term() || o.Message.Type != "account" || d.m.Phase() < coordinator.Settling {
			d.t.Errorf("%v is sent in term %d and phase %v, want the type and the term of the coordinator after its claim", o, d.m.Term(), d.m.Phase())
		}
		if o.Message.Kind == coordinator.Host && len(o.Message.Shards) == 0 {
			if !slices.Contains(d.still, o.To.Name) {
				probed = append(probed, o)
			}
			continue
		}
		line := fmt.Sprintf("%s %v", o.To.Name, o.Message.Kind)
		if len(o.Message.Shards) > 0 {
			line += fmt.Sprint(o.Message.Shards)
		}
		for _, h := range o.Message.Homes {
			line += fmt.Sprint(" ", h.Node.Name, h.Shards)
		}
		d.out = append(d.out, fmt.Sprintf("%s@%d", line, o.Message.Round))
	}
	d.shutDown = d.shutDown || e.ShutDownRegion
	if e.Stop != 0 {
		d.stopped = e.Stop
	}
	if e.Save != nil {
		d.save = e.Save
		d.changes = append(d.changes, e.Save.Change)
	}
	if e.Ask != nil {
		d.ask = e.Ask
	}
	if e.Save != nil && !d.hold {
		d.saved()
	}
	if e.Ask != nil && !d.mute {
		d.place(allocation.All(e.Ask.View, e.Ask.Requests, allocation.LeastShards{}.Allocate)...)
	}
}

// saved stores the pending change and acknowledges it.
func (d *driver) saved() {
	d.t.Helper()
	if d.save == nil {
		d.t.Fatal("no save is pending")
	}
	id := d.save.ID
	d.land()
	d.step(coordinator.Saved{ID: id})
}

// land stores the pending change without an acknowledgement.
func (d *driver) land() {
	d.t.Helper()
	s := d.save
	after, err := d.state.Apply(s.Events...)
	if err != nil || s.Rev != d.rev || !after.Equal(s.After) {
		d.t.Fatalf("invalid change after event %d, the store ends at %d: %+v: %v", s.Rev, d.rev, s.Events, err)
	}
	d.save, d.state, d.rev = nil, after, s.Rev+uint64(len(s.Events))
}

func (d *driver) fail() { d.step(coordinator.SaveFailed{ID: d.save.ID}) }

func (d *driver) place(homes ...identity.Node) {
	d.t.Helper()
	if d.ask == nil {
		d.t.Fatal("no call of the strategy is pending")
	}
	id := d.ask.ID
	d.ask = nil
	d.step(coordinator.HomesChosen{ID: id, Homes: homes})
}

// sent returns the messages since the last call, without their rounds.
func (d *driver) sent() string {
	lines := make([]string, len(d.out))
	for i, line := range d.out {
		lines[i], _, _ = strings.Cut(line, "@")
	}
	d.out = nil
	return strings.Join(lines, ", ")
}

// want compares the messages since the last call.
func (d *driver) want(name, want string) {
	d.t.Helper()
	if got := d.sent(); got != want {
		d.t.Errorf("%s: sent\n%s\nwant\n%s", name, got, want)
	}
}

// stored compares the changes since the last call.
func (d *driver) stored(name, want string) {
	d.t.Helper()
	changes := make([]string, len(d.changes))
	for i, c := range d.changes {
		var events []string
		for _, e := range c.Events {
			line := e.Kind.String()
			if e.Node.Name != "" {
				line += " " + e.Node.Name
			}
			if len(e.Shards) > 0 {
				line += fmt.Sprint(e.Shards)
			}
			if e.Term > 0 {
				line += fmt.Sprint(" ", e.Term)
			}
			events = append(events, line)
		}
		changes[i] = strings.Join(events, ", ")
	}
	d.changes = nil
	if got := strings.Join(changes, "; "); got != want {
		d.t.Errorf("%s: stored\n%s\nwant\n%s", name, got, want)
	}
}

func (d *driver) noted(kind coordinator.NoteKind) int {
	n := 0
	for _, note := range d.notes {
		if note.Kind == kind {
			n++
		}
	}
	return n
}
