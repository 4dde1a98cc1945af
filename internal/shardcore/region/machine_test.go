// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 7} }

func start(t *testing.T, cfg region.Config) *region.Machine {
	t.Helper()
	cfg.Self, cfg.Type, cfg.Instance = node("a"), "account", 2
	m, err := region.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	setMembers(m, "c", "a", "b")
	receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 5})
	return m
}

func setMembers(m *region.Machine, names ...string) region.Effects {
	var members []identity.Member
	for i, name := range names {
		members = append(members, identity.Member{Node: node(name), Status: identity.Up, UpNumber: int32(i)})
	}
	slices.SortFunc(members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	return m.Step(0, region.Members{Members: members})
}

func receive(m *region.Machine, msg coordinator.Message) region.Effects {
	msg.Type = "account"
	if msg.Instance == 0 {
		msg.Instance = 2
	}
	return m.Step(0, region.CoordinatorMessage{From: node("c"), Message: msg})
}

func homes(term, round uint64, name string) coordinator.Message {
	return coordinator.Message{Kind: coordinator.Homes, Term: term, Round: round, Homes: []coordinator.Home{{Node: node(name), Shards: []region.Shard{1}}}}
}

func shardMessage(kind coordinator.Kind, round uint64) coordinator.Message {
	return coordinator.Message{Kind: kind, Term: 5, Round: round, Shards: []region.Shard{1}}
}

func hasMessage(out region.Effects, kind coordinator.Kind) bool {
	for _, o := range out.Messages {
		if o.Message.Kind == kind && o.Message.Instance == 2 && o.To == node("c") {
			return true
		}
	}
	return false
}

func TestOldAndForeignMessagesAreIgnored(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 3, "b"))
	if out := receive(m, homes(4, 9, "c")); !hasMessage(out, coordinator.Fenced) || out.Messages[0].Message.Term != 5 {
		t.Errorf("a lower term: %+v, want Fenced with term 5", out)
	}
	receive(m, homes(5, 2, "c"))
	other := homes(5, 4, "c")
	other.Instance = 1
	receive(m, other)
	if home, _ := m.Home(1); home != node("b") {
		t.Errorf("Home(1) = %v, want b", home)
	}
	again := coordinator.Message{Kind: coordinator.RegisterAgain, Term: 6, Instance: 1}
	if out := receive(m, again); !hasMessage(out, coordinator.Register) || m.Registered() {
		t.Errorf("RegisterAgain: %+v, want Register", out)
	}
}

func TestHandOffIsAcknowledgedAfterTheFlush(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	if out := m.Step(0, region.Send{Shard: 1, Token: 1}); len(out.Frames) != 1 || out.Frames[0].Frame.Kind != region.Forward {
		t.Fatalf("Send: %+v, want one Forward", out)
	}
	out := receive(m, shardMessage(coordinator.BeginHandOff, 2))
	if len(out.Frames) != 1 || out.Frames[0].Frame.Kind != region.Flush || hasMessage(out, coordinator.BeginHandOffAck) {
		t.Fatalf("BeginHandOff: %+v, want a Flush and no BeginHandOffAck", out)
	}
	if during := m.Step(0, region.Send{Shard: 1, Token: 2}); len(during.Frames) != 0 {
		t.Errorf("Send during the hand-off: %+v, want no frame", during)
	}
	flushed := region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID}
	if out = m.Step(0, region.FrameReceived{From: node("b"), Frame: flushed}); !hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("Flushed: %+v, want BeginHandOffAck", out)
	}
	if out = receive(m, shardMessage(coordinator.BeginHandOff, 2)); !hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("a second BeginHandOff: %+v, want BeginHandOffAck", out)
	}
}

func TestRemovedRegionsAreNotFlushed(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	receive(m, shardMessage(coordinator.BeginHandOff, 2))
	if out := setMembers(m, "c", "a"); !hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("after the removal: %+v, want BeginHandOffAck", out)
	}
	receive(m, homes(5, 3, "b"))
	if _, known := m.Home(1); known {
		t.Error("Home returned a removed node")
	}
}

func TestHostAfterHandOff(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	if out := receive(m, shardMessage(coordinator.Host, 1)); len(out.Actions) != 1 || !hasMessage(out, coordinator.Hosted) {
		t.Fatalf("Host: %+v, want a start and Hosted", out)
	}
	receive(m, shardMessage(coordinator.HandOff, 2))
	receive(m, shardMessage(coordinator.HandOff, 3))
	out := m.Step(0, region.ShardDone{Shard: 1, Generation: 1})
	if !hasMessage(out, coordinator.Stopped) || out.Messages[0].Message.Round != 3 || len(m.Hosted()) != 0 {
		t.Errorf("ShardDone: %+v, want Stopped of round 3 and no hosted shard", out)
	}
	if out := receive(m, coordinator.Message{Kind: coordinator.Host, Term: 5, Round: 3}); len(out.Actions) != 0 || !hasMessage(out, coordinator.Hosted) {
		t.Errorf("Host without shards: %+v, want Hosted and no action", out)
	}
	receive(m, shardMessage(coordinator.Host, 4))
	receive(m, shardMessage(coordinator.HandOff, 5))
	receive(m, shardMessage(coordinator.Host, 6))
	if out := m.Step(0, region.ShardDone{Shard: 1, Generation: 2}); len(out.Actions) != 1 || out.Actions[0].Generation != 3 {
		t.Errorf("Host during the hand-off: %+v, want a start of generation 3", out)
	}
}

func TestBufferIsLimited(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{BufferSize: 1})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	out := m.Step(0, region.Send{Shard: 2, Token: 2})
	if len(out.Refused) != 1 || out.Refused[0] != (shard.Refusal{Token: 2, Reason: shard.BufferFull}) || m.Buffered() != 1 {
		t.Errorf("a message over the limit: %+v, want message 2 refused with BufferFull", out)
	}
}

func TestMessageIsRelayedOnce(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for hop, token := range []uint64{10, 11} {
		frame := region.Frame{Kind: region.Forward, Shard: 1, Token: token, Hop: hop}
		if out := m.Step(0, region.FrameReceived{From: node("c"), Frame: frame}); out.Frames[0].Frame.Kind != region.NotHome {
			t.Errorf("hop %d: %+v, want NotHome", hop, out)
		}
	}
	out := receive(m, homes(5, 1, "b"))
	if len(out.Refused) != 1 || out.Refused[0].Token != 11 || len(out.Frames) != 1 || out.Frames[0].Frame.Hop != 1 {
		t.Errorf("a relayed message: %+v, want message 11 refused and a Forward with hop 1", out)
	}
}

func TestInvalidConfigsNameTheField(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*region.Config){
		"Self":           func(c *region.Config) { c.Self.UID = 0 },
		"Type":           func(c *region.Config) { c.Type = "" },
		"Instance":       func(c *region.Config) { c.Instance = 0 },
		"BufferSize":     func(c *region.Config) { c.BufferSize = -1 },
		"RetryInterval":  func(c *region.Config) { c.RetryInterval = -1 },
		"GiveUpAfter":    func(c *region.Config) { c.GiveUpAfter = -1 },
		"RestartBackoff": func(c *region.Config) { c.RestartBackoff = -1 },
	} {
		cfg := region.Config{Self: node("a"), Type: "account", Instance: 1}
		change(&cfg)
		if _, err := region.New(cfg); !errors.Is(err, region.ErrInvalid) || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: %v, want ErrInvalid with the field", field, err)
		}
	}
}

// A region forgets the homes on removed nodes only.
func TestHomesOfRemovedNodes(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	receive(m, coordinator.Message{Kind: coordinator.Homes, Term: 5, Round: 2, Homes: []coordinator.Home{{Node: node("c"), Shards: []region.Shard{2}}}})
	setMembers(m, "c", "a")
	if home, known := m.Home(1); known {
		t.Errorf("Home(1) = %v, want no home", home)
	}
	if home, _ := m.Home(2); home != node("c") {
		t.Errorf("Home(2) = %v, want c", home)
	}
	if out := m.Step(0, region.Send{Shard: 1, Token: 1}); !hasMessage(out, coordinator.GetHomes) {
		t.Errorf("Send: %+v, want GetHomes", out)
	}
}
