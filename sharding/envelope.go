// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/wire"
)

// errMalformed is matched by the errors about bytes that are not a valid message.
var errMalformed = errors.New("sharding: malformed")

// wireVersion is the version of the encodings of this package: see package wire.
const wireVersion = 0x10

// deliveryVersion is the version of an encoded command with the number of its transmission.
const deliveryVersion = wireVersion | 1

// Limits of the parts of a command. A longer trace context is omitted.
const (
	maxTrace    = 4 << 10
	maxManifest = 1 << 10
	maxPayload  = 16 << 20
)

// Flags of an encoded command.
const (
	withReplyAddress = 1 << iota
	withDeadline
	withTrace
)

// envelope is a command that was sent on this node, while the machine buffers and routes it.
type envelope struct {
	message hosting.Message
	encoded encodedCommand
	failed  error // the error of encoding; reported only if the command must be sent to another node
	charged int   // bytes of shell.own, while the command waits
}

// commandCost is the charge for a command in addition to its encoding: the memory of its queue
// entries and of its caller.
const commandCost = 1 << 10

// costOf returns the charge for a command with an encoding of this size. The command is also in
// memory in its decoded form, which counts like the encoding.
func costOf(encoded int) int { return 2*encoded + commandCost }

// encodedCommand is the part of an encoded command that does not depend on the time of sending. The
// zero value means that the command is not encoded.
type encodedCommand struct {
	manifest string
	payload  []byte
}

func (e *encodedCommand) isZero() bool { return e.manifest == "" }

// startManifest is the manifest of hosting.Start. It never changes.
const startManifest = "refold.sharding.start"

// encode encodes a command. The codec belongs to the application and may panic.
func (s *shell) encode(m *hosting.Message) (e encodedCommand, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: encode a %T: the codec panicked: %s", eventsourcing.ErrArgument, m.Command(), panics.Text(p))
		}
	}()
	if _, start := m.Command().(hosting.Start); start {
		return encodedCommand{manifest: startManifest}, nil
	}
	manifest, payload, err := s.commands.Encode(m.Command())
	if err == nil && len(manifest) > maxManifest {
		err = fmt.Errorf("type name has %d bytes, at most %d are allowed", len(manifest), maxManifest)
	}
	if err != nil {
		return encodedCommand{}, fmt.Errorf("%w: encode a %T for another node: Type.Commands: %w", eventsourcing.ErrArgument, m.Command(), err)
	}
	return encodedCommand{manifest, payload}, nil
}

// appendCommand appends the encoding of a command. The number identifies the reply; 0 means that no
// caller waits.
func (s *shell) appendCommand(dst []byte, m *hosting.Message, e *encodedCommand, number uint64) []byte {
	ctx := m.Context()
	var trace []byte
	if s.runtime != nil {
		trace = hosting.Inject(s.runtime, ctx)
	}
	flags := byte(0)
	if number != 0 {
		flags |= withReplyAddress
	}
	deadline, limited := ctx.Deadline()
	if limited {
		flags |= withDeadline
	}
	if len(trace) > 0 && len(trace) <= maxTrace {
		flags |= withTrace
	}
	version, attempt := byte(wireVersion), m.Attempt()
	if attempt > 0 {
		version = deliveryVersion
	}
	dst = append(dst, version, flags)
	if flags&withReplyAddress != 0 {
		dst = wire.AppendNode(dst, s.node.Self())
		dst = binary.AppendUvarint(dst, number)
	}
	if flags&withDeadline != 0 {
		dst = binary.AppendUvarint(dst, uint64(max(0, time.Until(deadline)).Microseconds())) //nolint:gosec // not negative
	}
	if flags&withTrace != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(trace)))
		dst = append(dst, trace...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.manifest)))
	dst = append(dst, e.manifest...)
	dst = binary.AppendUvarint(dst, uint64(len(e.payload)))
	dst = append(dst, e.payload...)
	if attempt > 0 {
		dst = binary.AppendUvarint(dst, uint64(attempt))
	}
	return dst
}

// replyAddress identifies the caller of a command: the node, and the number of the ask on that
// node. The zero value means that no caller waits.
type replyAddress struct {
	node   identity.Node
	number uint64
}

func (a replyAddress) isSet() bool { return a.number != 0 }

// incomingCommand is a decoded command of another node. Its payload is still encoded.
type incomingCommand struct {
	replyTo     replyAddress
	hasDeadline bool
	timeLeft    time.Duration // if hasDeadline
	trace       []byte
	manifest    string
	payload     []byte
	attempt     int // number of the transmission of a delivery, 0 for other commands
}

// decodeCommand decodes the result of appendCommand. from is the node that has sent the command. The
// error matches errMalformed.
func decodeCommand(b []byte, from identity.Node) (a incomingCommand, err error) {
	r := wire.NewReader(b, deliveryVersion, maxPayload, errMalformed)
	flags := r.Byte("flags")
	if flags&withReplyAddress != 0 {
		a.replyTo = replyAddress{r.NodeLike(from), r.Uint(1<<63, "number")}
	}
	if flags&withDeadline != 0 {
		a.hasDeadline, a.timeLeft = true, time.Duration(r.Uint(1<<53, "microseconds"))*time.Microsecond //nolint:gosec // at most 2^63
	}
	if flags&withTrace != 0 {
		a.trace = r.Bytes(r.Count(maxTrace, 1, "bytes of a trace"), "trace")
	}
	a.manifest = string(r.Bytes(r.Count(maxManifest, 1, "bytes of a name"), "name"))
	a.payload = r.Bytes(r.Count(maxPayload, 1, "bytes of a command"), "command")
	if r.Minor() > 0 {
		a.attempt = int(r.Uint(1<<31-1, "attempt")) //nolint:gosec // at most 2^31-1
	}
	if err := r.End(); err != nil {
		return incomingCommand{}, err
	}
	return a, nil
}

// decodedCommand is the result of decoding a command of another node. If decoding failed, it holds
// a function that reports the failure to the caller.
type decodedCommand struct {
	message hosting.Message
	failed  func() // nil if the command was decoded
	// charge is held until the entity takes the command to handle it, or until the command leaves
	// this node.
	charge loop.Charge
}

// decode decodes a command for an entity, sent by a node. The loop must not call it: the codec
// belongs to the application and may block.
func (c *decodedCommand) decode(s *shell, from identity.Node, id string, body []byte) {
	a, err := decodeCommand(body, from)
	if err != nil {
		c.failed = func() { s.reportDropped(id, false, err) }
		return
	}
	to := a.replyTo
	command, err := s.decodePayload(&a)
	if err != nil {
		c.failed = func() {
			s.reportDropped(id, to.isSet(), err)
			s.sendReply(to, nil, err)
		}
		return
	}
	ctx := s.traceContext(a.trace)
	var deadline time.Time
	if a.hasDeadline {
		deadline = time.Now().Add(a.timeLeft)
	}
	var reply func(value any, err error)
	if to.isSet() {
		reply = func(value any, err error) { s.sendReply(to, value, err) }
	}
	c.message = s.carrier.NewMessage(ctx, id, command, deadline, reply, &c.charge)
	if a.attempt > 0 {
		c.message.SetAttempt(a.attempt)
	}
}

func (s *shell) traceContext(trace []byte) context.Context {
	if len(trace) == 0 || s.runtime == nil {
		return s.commandCtx
	}
	return hosting.Extract(s.runtime, s.commandCtx, trace)
}

func (s *shell) decodePayload(a *incomingCommand) (command any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decode the command %q: the codec panicked: %s", eventsourcing.ErrInvalid, a.manifest, panics.Text(p))
		}
	}()
	if a.manifest == startManifest {
		return hosting.Start{}, nil
	}
	if command, err = s.commands.Decode(a.manifest, a.payload); err != nil {
		return nil, fmt.Errorf("%w: decode the command %q: %w", eventsourcing.ErrInvalid, a.manifest, err)
	}
	return command, nil
}

// Forms of a reply.
const (
	formReply   = 0
	formRefusal = 1
)

func replyHeader(a replyAddress, form byte) []byte {
	return binary.AppendUvarint(append(make([]byte, 0, 256), wireVersion, form), a.number)
}

// sendReply sends the reply of an entity, if a caller waits.
func (s *shell) sendReply(a replyAddress, value any, err error) {
	if !a.isSet() {
		return
	}
	killed := false
	_ = panics.Call(func() { killed = errors.Is(err, ErrHandOff) }) // a method of a user's error may panic
	if killed {
		s.router.sendReply(a.node, append(replyHeader(a, formRefusal), byte(shardcore.HandedOff)), nil)
		return
	}
	s.router.sendReply(a.node, s.carrier.AppendReply(replyHeader(a, formReply), value, err), func(err error) []byte {
		return s.carrier.AppendReply(replyHeader(a, formReply), nil, fmt.Errorf("%w: cannot send the reply: %w", eventsourcing.ErrNoReply, err))
	})
}

// sendRefusal reports to the caller that the command was not delivered, and returns whether a
// caller waits.
func (s *shell) sendRefusal(body []byte, why shardcore.Reason) (asked bool) {
	a, err := decodeCommand(body, identity.Node{})
	if err != nil || !a.replyTo.isSet() {
		return false
	}
	s.router.sendReply(a.replyTo.node, append(replyHeader(a.replyTo, formRefusal), byte(why)), nil)
	return true
}

type incomingReply struct {
	number uint64
	reason shardcore.Reason // 0 unless the command was refused
	data   []byte
}

// decodeReply decodes a reply. The error matches errMalformed.
func decodeReply(b []byte) (incomingReply, error) {
	r := wire.NewReader(b, wireVersion, maxPayload+maxManifest, errMalformed)
	form := r.Byte("form")
	got := incomingReply{number: r.Uint(1<<63, "number")}
	switch {
	case r.Err() != nil:
	case form == formReply:
		_, n := binary.Uvarint(b[2:])
		got.data = b[2+n:]
	case form == formRefusal:
		got.reason = shardcore.Reason(r.Byte("reason"))
	default:
		r.Fail("unknown form %d of a reply", form)
	}
	return got, r.Err()
}
