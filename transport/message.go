// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Kind is the kind of a message. It selects the handler.
type Kind uint16

// The ranges of kinds. A package uses kinds of its own range.
const (
	// FirstClusterKind begins the range of package cluster.
	FirstClusterKind Kind = 1
	// FirstReplicationKind begins the range of package ddata.
	FirstReplicationKind Kind = 100
	// FirstShardingKind begins the range of package sharding.
	FirstShardingKind Kind = 200
	// FirstUserKind begins the range of all other packages. It ends with 65,535.
	FirstUserKind Kind = 1000
)

// Lane is one of the parallel paths between two nodes. Lanes do not wait for each other, and there
// is no order between them.
type Lane uint8

const (
	// Control is for membership and heartbeats. It has its own connection and no flow control: a
	// receiver without space drops the frames of this lane.
	Control = Lane(link.Control)
	// Data is for messages between entities, and for requests and replies.
	Data = Lane(link.Data)
	// Bulk is for large messages that can wait: gossip of replicated data, state transfers.
	Bulk = Lane(link.Bulk)

	// Lanes is the number of lanes.
	Lanes = link.Lanes
)

// String returns "control", "data" or "bulk".
func (l Lane) String() string { return link.Lane(l).String() }

// Message is a received message. The payload belongs to the handler.
type Message struct {
	// From is the sender. The carrier authenticates its name, but not its UID.
	From    identity.Node
	Lane    Lane
	Kind    Kind
	Payload []byte
}

// Handler handles messages. The context is cancelled when the transport is closed. Messages of one
// sender on one lane are handled one at a time. Messages of different senders or lanes are handled
// concurrently.
type Handler func(ctx context.Context, m Message)

// RequestHandler handles requests under the rules of Handler. It may return before it sends the
// reply.
type RequestHandler func(ctx context.Context, r *Request)

// Request is a message that expects a reply.
type Request struct {
	Message

	t           *Transport
	correlation uint64
	replied     atomic.Bool
}

// Reply sends the reply to the request. The payload must not change after the call. Only the first
// reply to a request is sent; later calls return nil. The errors are those of Send. After an error,
// Reply tries to send a failure to the peer.
func (r *Request) Reply(payload []byte) error {
	if r.replied.Swap(true) {
		return nil
	}
	err := r.t.send(r.From, Data, link.Message{Type: link.Reply, Kind: statusOK, Correlation: r.correlation, Payload: payload})
	if err != nil {
		r.fail(statusFailed)
	}
	return err
}

// reject replies with a status, unless a reply was already sent.
func (r *Request) reject(status link.Kind) {
	if !r.replied.Swap(true) {
		r.fail(status)
	}
}

func (r *Request) fail(status link.Kind) {
	_ = r.t.send(r.From, Data, link.Message{Type: link.Reply, Kind: status, Correlation: r.correlation})
}

// The kind of a reply is its status.
const (
	statusOK link.Kind = iota
	statusNoHandler
	statusFailed
)

// handlers is an immutable set of handlers.
type handlers struct {
	messages, named map[Kind]Handler
	requests        map[Kind]RequestHandler
}

// Handle sets the handler of a kind of messages that are addressed to this incarnation. It replaces
// an earlier handler. A nil handler removes the earlier one. Calls of the earlier handler may still
// be running.
func (t *Transport) Handle(kind Kind, h Handler) {
	t.change(func(all *handlers) { set(&all.messages, kind, h, h == nil) })
}

// HandleNamed sets the handler of a kind of messages that are addressed to the bare name. The
// sender of such a message need not have seen this incarnation.
func (t *Transport) HandleNamed(kind Kind, h Handler) {
	t.change(func(all *handlers) { set(&all.named, kind, h, h == nil) })
}

// HandleRequest sets the handler of a kind of requests.
func (t *Transport) HandleRequest(kind Kind, h RequestHandler) {
	t.change(func(all *handlers) { set(&all.requests, kind, h, h == nil) })
}

func (t *Transport) change(f func(*handlers)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := *t.handlers.Load()
	f(&all)
	t.handlers.Store(&all)
}

// set stores a changed copy of a map.
func set[H any](handlers *map[Kind]H, kind Kind, h H, remove bool) {
	changed := maps.Clone(*handlers)
	if changed == nil {
		changed = make(map[Kind]H)
	}
	if changed[kind] = h; remove {
		delete(changed, kind)
	}
	*handlers = changed
}
