// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
)

// Kind says what a message is.
type Kind uint8

// The numbers are those of the encoding and never change.
const (
	KindInitJoin Kind = 1 + iota
	KindInitJoinAck
	KindInitJoinNack
	KindJoin
	KindWelcome
	KindNameInUse
	KindPing
	KindPong
	KindDigests
	KindVersions
	KindSeen
	KindState
	KindHeartbeat
	KindHeartbeatReply
	KindEcho
	KindExitingConfirmed
	KindQuarantined
	KindStranger
	KindDoubt
	KindVouch
	// Kinds is one more than the last.
	Kinds
)

func (k Kind) String() string {
	names := []string{
		"", "init-join", "init-join-ack", "init-join-nack", "join", "welcome", "name-in-use", "ping", "pong", "digests", "versions", "seen",
		"state", "heartbeat", "heartbeat-reply", "echo", "exiting-confirmed", "quarantined", "stranger",
		"doubt", "vouch",
	}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return names[k]
}

// Message is what one node says to another about membership. All of them travel
// on the control lane. Who sends it is told by the transport, never by the message.
// InitJoin, Join and Ping go to a name, all others to an incarnation.
type Message interface{ kind() Kind }

// InitJoin asks a seed whether one could join. Settings are those that have to
// be the same on all nodes.
type InitJoin struct{ Settings []Setting }

// InitJoinAck answers that one could join, and what the cluster's settings are.
// Compatible is false if they differ.
type InitJoinAck struct {
	Compatible bool
	Settings   []Setting
}

// InitJoinNack answers that one can't join here now.
type InitJoinNack struct{}

// Join asks to become a member.
type Join struct {
	Roles   []string
	Version Version
}

// Welcome answers a Join: the receiver is a member, and this is what is known.
type Welcome struct{ State }

// NameInUse answers a Join: another incarnation with the same name is alive.
type NameInUse struct{ Holder identity.Node }

// Ping asks a name whether an incarnation is alive. Only that answers.
type Ping struct{ Node identity.Node }

// Pong answers a Ping.
type Pong struct{}

// Digests says which version of the gossip the sender has, and who has seen it.
// The zero Seen stands for any.
type Digests struct{ Version, Seen Digest }

// Versions says the same in full, for when the versions differ.
type Versions struct {
	Clock Clock
	Seen  Digest
}

// Seen says who has seen the version, for when the receiver has the same.
type Seen struct {
	Version Digest
	seen    []byte
}

// State is a whole gossip, still encoded, so that nobody decodes what he has.
type State struct {
	Version Digest
	seen    []byte
	// Content is what AppendContent wrote. It is part of the message's bytes.
	Content []byte
}

// Heartbeat asks for a HeartbeatReply.
type Heartbeat struct {
	Nr uint64
	// At is when it was sent, on the clock of who sent it.
	At time.Duration
}

// HeartbeatReply answers a Heartbeat and repeats it.
type HeartbeatReply struct {
	Nr uint64
	At time.Duration
}

// Echo is what a node sends to itself, to know whether its own link works.
type Echo struct{ Nr uint64 }

// ExitingConfirmed says that the sender is ready to be removed.
type ExitingConfirmed struct{}

// Quarantined says that the sender takes nothing from the receiver any more.
type Quarantined struct{}

// Stranger says that the receiver, who gossips, is no member as far as the sender
// knows. Whoever was let in by a node that crashed right after hears that.
type Stranger struct{}

// Doubt asks a member whether the sender is one, too: it was away for so long
// that it may have been given up. Nr comes back in the answer. Version is what the
// sender knows.
type Doubt struct {
	Nr      uint64
	Version Digest
}

// Vouch answers a Doubt: the receiver is a member. Behind it follows what the
// sender knows. Absence says whether the sender was away as well.
type Vouch struct {
	Nr      uint64
	Absence Absence
}

// Setting is a setting that has to be the same on all nodes of a cluster.
type Setting struct {
	Key, Value string
	// Optional is compared only if both nodes have it.
	Optional bool
}

// KindOf says what a message is.
func KindOf(m Message) Kind { return m.kind() }

func (InitJoin) kind() Kind         { return KindInitJoin }
func (InitJoinAck) kind() Kind      { return KindInitJoinAck }
func (InitJoinNack) kind() Kind     { return KindInitJoinNack }
func (Join) kind() Kind             { return KindJoin }
func (Welcome) kind() Kind          { return KindWelcome }
func (NameInUse) kind() Kind        { return KindNameInUse }
func (Ping) kind() Kind             { return KindPing }
func (Pong) kind() Kind             { return KindPong }
func (Digests) kind() Kind          { return KindDigests }
func (Versions) kind() Kind         { return KindVersions }
func (Seen) kind() Kind             { return KindSeen }
func (State) kind() Kind            { return KindState }
func (Heartbeat) kind() Kind        { return KindHeartbeat }
func (HeartbeatReply) kind() Kind   { return KindHeartbeatReply }
func (Echo) kind() Kind             { return KindEcho }
func (ExitingConfirmed) kind() Kind { return KindExitingConfirmed }
func (Quarantined) kind() Kind      { return KindQuarantined }
func (Stranger) kind() Kind         { return KindStranger }
func (Doubt) kind() Kind            { return KindDoubt }
func (Vouch) kind() Kind            { return KindVouch }

// StateOf returns a gossip as it is sent.
func StateOf(g Gossip) State {
	return State{Version: g.Clock().Digest(), seen: encodeBitmap(g.seen), Content: g.AppendContent(nil)}
}

// Gossip decodes the state. What is the same in known is shared with it. The
// error matches ErrMalformed.
func (s State) Gossip(known Gossip) (Gossip, error) {
	g, err := DecodeContent(s.Content, known)
	if err != nil {
		return Gossip{}, err
	}
	if g.seen, err = readSeen(s.seen, len(g.members)); err != nil {
		return Gossip{}, err
	}
	return g, nil
}

func readSeen(b []byte, members int) (bitmap, error) {
	r := &reader{b: b}
	seen := r.bitmap(members, "seen")
	return seen, r.err
}

// SeenOf returns who has seen a gossip.
func SeenOf(g Gossip) Seen {
	return Seen{Version: g.Clock().Digest(), seen: encodeBitmap(g.seen)}
}
