// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// What an answer begins with. The numbers never change.
const (
	answered  byte = 0 // the payload follows
	refused   byte = 1 // a text follows
	notHosted byte = 2
	busy      byte = 3
)

// forwardVersion is that of the encoding.
const forwardVersion = 1

var errForward = errors.New("cluster: malformed message for a singleton")

// appendForward encodes a message for a singleton: version, length of the name, name, payload.
func appendForward(dst []byte, name string, payload []byte) []byte {
	dst = append(dst, forwardVersion, byte(len(name))) //nolint:gosec // at most 255, which the proxy has checked
	dst = append(dst, name...)
	return append(dst, payload...)
}

// decodeForward reads what appendForward has written. The payload is part of b.
func decodeForward(b []byte) (name string, payload []byte, err error) {
	if len(b) < 2 || b[0] != forwardVersion || len(b) < 2+int(b[1]) {
		return "", nil, errForward
	}
	return string(b[2 : 2+int(b[1])]), b[2+int(b[1]):], nil
}

// message takes what a proxy has sent.
func (h *hosts) message(_ context.Context, m transport.Message) { h.take(m, nil) }

// request takes what a proxy has asked.
func (h *hosts) request(_ context.Context, r *transport.Request) {
	m := r.Message
	r.Payload = nil // the delivery has it; what is kept until the answer is small
	h.take(m, r)
}

// take leaves a message to the instance. It never waits for that: the handler would hold up what else the sender sent.
func (h *hosts) take(m transport.Message, r *transport.Request) {
	d := &Delivery{From: m.From, request: r}
	name, payload, err := decodeForward(m.Payload)
	if err != nil {
		h.node.dropped(DroppedMalformed, m.From, "")
		_ = d.Refuse(err.Error())
		return
	}
	d.Payload = payload
	status := notHosted
	if inbox := h.inbox(name); inbox != nil {
		status = inbox.put(d)
	}
	switch status {
	case notHosted:
		h.node.dropped(DroppedNotHosted, m.From, name)
	case busy:
		h.node.dropped(DroppedBusy, m.From, name)
	default:
		return
	}
	_ = d.answer(status, nil) // the asker may be gone
}

// result returns what an answer says.
func result(from identity.Node, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("on %v: %w", from, errForward)
	}
	switch b[0] {
	case answered:
		return b[1:], nil
	case notHosted:
		return nil, fmt.Errorf("on %v: %w", from, ErrNotHosted)
	case busy:
		return nil, fmt.Errorf("on %v: %w", from, ErrBusy)
	}
	return nil, fmt.Errorf("on %v: %w: %s", from, ErrRefused, b[1:])
}
