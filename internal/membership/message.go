// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/wire"
)

// Kind is the kind of a message.
type Kind uint8

// The numbers are those of the wire format and never change.
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
	KindLivenessQuery
	KindLivenessReply
	// Kinds is one more than the last kind.
	Kinds
)

func (k Kind) String() string {
	return enum.Name(k, "kind",
		"", "init-join", "init-join-ack", "init-join-nack", "join", "welcome", "name-in-use", "ping", "pong",
		"digests", "versions", "seen", "state", "heartbeat", "heartbeat-reply", "echo", "exiting-confirmed",
		"quarantined", "stranger", "doubt", "vouch")
}

// Message is a message of the membership protocol. All messages use the control lane. The transport
// provides the sender, which is not part of the message. InitJoin, Join and Ping are sent to a
// name, all others to an incarnation.
type Message interface{ kind() Kind }

// InitJoin asks a seed whether the sender could join. Settings are the settings that must be the
// same on all nodes.
type InitJoin struct{ Settings []Setting }

// InitJoinAck replies that the sender of InitJoin could join, with the cluster's settings.
// Compatible is false if the settings of InitJoin differ from the cluster's settings.
type InitJoinAck struct {
	Compatible bool
	Settings   []Setting
}

// InitJoinNack replies that the node cannot accept others now.
type InitJoinNack struct{}

// Join requests membership.
type Join struct {
	Roles   []string
	Version identity.Version
}

// Welcome replies to a Join: the receiver is a member. It has the state of the cluster.
type Welcome struct{ State }

// NameInUse replies to a Join: another incarnation with the same name is alive.
type NameInUse struct{ Holder identity.Node }

// Ping asks a name whether an incarnation is alive. Only that incarnation replies.
type Ping struct{ Node identity.Node }

// Pong replies to a Ping.
type Pong struct{}

// Digests has digests of the sender's version of the gossip and of the set of members that have
// seen that version. The zero Seen matches any set.
type Digests struct{ Version, Seen Digest }

// Versions has the sender's clock instead of its digest. It is sent if the versions differ.
type Versions struct {
	Clock Clock
	Seen  Digest
}

// Seen has the members that have seen a version that both nodes have.
type Seen struct {
	Version Digest
	seen    []byte
}

// State is a whole gossip in its encoded form, so that a receiver that already has the gossip need
// not decode it.
type State struct {
	Version Digest
	seen    []byte
	// Content has the format of AppendContent. It shares the memory of the message.
	Content []byte
}

// Heartbeat requests a HeartbeatReply.
type Heartbeat struct {
	Nr uint64
	// At is the time of sending on the clock of the sender.
	At time.Duration
}

// HeartbeatReply replies to a Heartbeat with the same fields.
type HeartbeatReply struct {
	Nr uint64
	At time.Duration
}

// Echo is the heartbeat of a node to itself. It tests the connection of the node.
type Echo struct{ Nr uint64 }

// ExitingConfirmed reports that the sender is ready to be removed.
type ExitingConfirmed struct{}

// Quarantined reports that the sender accepts no more messages from the receiver.
type Quarantined struct{}

// Stranger replies to gossip: the receiver is not a member in the state of the sender. This happens
// if the member that accepted the receiver crashed right afterwards.
type Stranger struct{}

// LivenessQuery asks a member to confirm the membership of the sender, which was disconnected for
// so long that it may have been downed. The reply repeats Nr. Version is the version of the
// sender's gossip.
type LivenessQuery struct {
	Nr      uint64
	Version Digest
}

// LivenessReply replies to a LivenessQuery: the receiver is a member. The state of the sender
// follows as a separate message. Absence reports whether the sender was disconnected as well.
type LivenessReply struct {
	Nr      uint64
	Absence Absence
}

// Setting is a setting that must be the same on all nodes of a cluster.
type Setting struct {
	Key, Value string
	// Optional settings are compared only if both nodes have them.
	Optional bool
}

// KindOf returns the kind of a message.
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
func (LivenessQuery) kind() Kind    { return KindLivenessQuery }
func (LivenessReply) kind() Kind    { return KindLivenessReply }

// StateOf returns a gossip as a message.
func StateOf(g Gossip) State {
	return State{Version: g.Clock().Digest(), seen: encodeBitmap(g.seen), Content: g.AppendContent(nil)}
}

// Gossip decodes the state. Equal parts are shared with known. The error matches ErrMalformed.
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
	r := wire.NewFields(b, ErrMalformed)
	seen := readBitmap(r, members, "seen")
	return seen, r.Err()
}
