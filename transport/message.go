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

// Message is what a handler gets. The payload is the handler's.
type Message struct {
	// From is the sender: the name is certain, the UID is what it says.
	From    identity.Node
	Lane    Lane
	Kind    Kind
	Payload []byte
}

// Handler handles messages. The context ends when the transport is closed. Messages
// of one sender on one lane come one at a time, those of others meanwhile.
type Handler func(ctx context.Context, m Message)

// RequestHandler handles requests in the same way. It may return before it
// replies.
type RequestHandler func(ctx context.Context, r *Request)

// Request is a message that waits for an answer.
type Request struct {
	Message

	t           *Transport
	correlation uint64
	answered    atomic.Bool
}

// Reply answers the request with a payload that must not be changed any more. Only
// the first reply of a request is sent. An error is one of Send, and the caller
// is told if there is a way to.
func (r *Request) Reply(payload []byte) error {
	if r.answered.Swap(true) {
		return nil
	}
	err := r.t.send(r.From, Data, link.Message{Type: link.Reply, Kind: statusOK, Correlation: r.correlation, Payload: payload})
	if err != nil {
		r.fail(statusFailed)
	}
	return err
}

// refuse answers with a status, unless the request was answered already.
func (r *Request) refuse(status Kind) {
	if !r.answered.Swap(true) {
		r.fail(status)
	}
}

func (r *Request) fail(status Kind) {
	_ = r.t.send(r.From, Data, link.Message{Type: link.Reply, Kind: status, Correlation: r.correlation})
}

// What is in the place of the kind of a reply.
const (
	statusOK Kind = iota
	statusNoHandler
	statusFailed
)

// handlers is never changed once it is in use.
type handlers struct {
	messages, named map[Kind]Handler
	requests        map[Kind]RequestHandler
}

// Handle sets who handles messages of a kind that come to this incarnation. It
// replaces an earlier handler, and nil takes it away; calls of that one may still
// be running.
func (t *Transport) Handle(kind Kind, h Handler) {
	t.change(func(all *handlers) { set(&all.messages, kind, h, h == nil) })
}

// HandleNamed sets who handles messages of a kind that come to the bare name, from
// senders that may know nothing about this incarnation.
func (t *Transport) HandleNamed(kind Kind, h Handler) {
	t.change(func(all *handlers) { set(&all.named, kind, h, h == nil) })
}

// HandleRequest sets who handles requests of a kind.
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

// set changes a copy of a map.
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

// Kind says what a message is about, and so which handler gets it.
type Kind = link.Kind

// Who uses which kinds: a package takes its own from these ranges.
const (
	// FirstClusterKind is the first of package cluster.
	FirstClusterKind Kind = 1
	// FirstReplicationKind is the first of package ddata.
	FirstReplicationKind Kind = 100
	// FirstShardingKind is the first of package sharding.
	FirstShardingKind Kind = 200
	// FirstUserKind is the first for everybody else. Up to 65,535 is free.
	FirstUserKind Kind = 1000
)

// Lane is one of the ways that messages take from node to node.
type Lane = link.Lane

// The lanes.
const (
	Control = link.Control
	Data    = link.Data
	Bulk    = link.Bulk
)
