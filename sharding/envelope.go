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
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/wire"
)

// errMalformed is matched by the errors about bytes that are no command or no answer.
var errMalformed = errors.New("sharding: malformed")

// formVersion is that of commands and answers on their way: see package wire.
const formVersion = 0x10

// Limits of what travels with a command. More of a trace is left out.
const (
	maxTrace    = 4 << 10
	maxManifest = 1 << 10
	maxPayload  = 16 << 20
)

// What a command has with it.
const (
	withAsker = 1 << iota
	withDeadline
	withTrace
)

// parcel is a command of this node on its way through the machine.
type parcel struct {
	message eventsourcing.Message
	command encoded
}

// encoded is a command as it travels, but for what depends on when it leaves. The zero value is none.
type encoded struct {
	manifest string
	payload  []byte
}

func (e *encoded) none() bool { return e.manifest == "" }

// encode encodes a command. Codecs are the program's: they may panic.
func (s *site) encode(m *eventsourcing.Message) (e encoded, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: encode a %T: the codec panicked: %v", eventsourcing.ErrInvalid, m.Command(), p)
		}
	}()
	manifest, payload, err := s.commands.Encode(m.Command())
	if err == nil && len(manifest) > maxManifest {
		err = errors.New("its name is too long")
	}
	if err != nil {
		return encoded{}, fmt.Errorf("%w: encode a %T for another node: Type.Commands: %w", eventsourcing.ErrInvalid, m.Command(), err)
	}
	return encoded{manifest, payload}, nil
}

// appendCommand returns what the other node needs. The number is that of the ask, 0 if nobody waits.
func (s *site) appendCommand(m *eventsourcing.Message, e *encoded, number uint64) []byte {
	ctx := m.Context()
	var trace []byte
	if s.opts.Runtime != nil {
		trace = s.opts.Runtime.Inject(ctx)
	}
	flags := byte(0)
	if number != 0 {
		flags |= withAsker
	}
	deadline, limited := ctx.Deadline()
	if limited {
		flags |= withDeadline
	}
	if len(trace) > 0 && len(trace) <= maxTrace {
		flags |= withTrace
	}
	self := s.node.Self()
	dst := make([]byte, 0, len(self.Name)+len(trace)+len(e.manifest)+len(e.payload)+64)
	dst = append(dst, formVersion, flags)
	if flags&withAsker != 0 {
		dst = wire.AppendNode(dst, self)
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
	return append(dst, e.payload...)
}

// asker is who waits for the answer to a command, and under which number. The zero value is nobody.
type asker struct {
	node   identity.Node
	number uint64
}

func (a asker) waits() bool { return a.number != 0 }

// arrival is a command as it has come from another node.
type arrival struct {
	asker    asker
	limited  bool
	left     time.Duration // if limited
	trace    []byte
	manifest string
	payload  []byte
}

// decodeArrival reads what appendCommand has written. The error matches errMalformed.
func decodeArrival(b []byte) (a arrival, err error) {
	r := wire.NewReader(b, formVersion, maxPayload, errMalformed)
	flags := r.Byte("flags")
	if flags&withAsker != 0 {
		a.asker = asker{r.Node(), r.Uint(1<<63, "number")}
	}
	if flags&withDeadline != 0 {
		a.limited, a.left = true, time.Duration(r.Uint(1<<53, "microseconds"))*time.Microsecond //nolint:gosec // at most 2^63
	}
	if flags&withTrace != 0 {
		a.trace = r.Bytes(r.Count(maxTrace, 1, "bytes of a trace"), "trace")
	}
	a.manifest = string(r.Bytes(r.Count(maxManifest, 1, "bytes of a name"), "name"))
	a.payload = r.Bytes(r.Count(maxPayload, 1, "bytes of a command"), "command")
	if err := r.End(); err != nil {
		return arrival{}, err
	}
	return a, nil
}

// open makes a command of what has come for an entity. If that fails whoever waits for the answer is told.
func (s *site) open(id string, body []byte) (eventsourcing.Message, bool) {
	a, err := decodeArrival(body)
	if err != nil {
		s.drop(id, false, err)
		return eventsourcing.Message{}, false
	}
	command, err := s.decode(&a)
	if err != nil {
		s.drop(id, a.asker.waits(), err)
		s.answer(a.asker, nil, err)
		return eventsourcing.Message{}, false
	}
	ctx := s.traced(a.trace)
	var deadline time.Time
	if a.limited {
		deadline = time.Now().Add(a.left)
	}
	to := a.asker
	if !to.waits() {
		return eventsourcing.NewMessage(ctx, id, command, deadline, nil), true
	}
	return eventsourcing.NewMessage(ctx, id, command, deadline, func(value any, err error) { s.answer(to, value, err) }), true
}

// traced returns the context of a command that has come from another node.
func (s *site) traced(trace []byte) context.Context {
	if len(trace) == 0 || s.opts.Runtime == nil {
		return s.root
	}
	return s.opts.Runtime.Extract(s.root, trace)
}

func (s *site) decode(a *arrival) (command any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decode the command %q: the codec panicked: %v", eventsourcing.ErrInvalid, a.manifest, p)
		}
	}()
	if command, err = s.commands.Decode(a.manifest, a.payload); err != nil {
		return nil, fmt.Errorf("%w: decode the command %q: %w", eventsourcing.ErrInvalid, a.manifest, err)
	}
	return command, nil
}

// The forms of an answer.
const (
	formAnswer  = 0
	formRefused = 1
)

// answerHead begins an answer.
func answerHead(a asker, form byte) []byte {
	return binary.AppendUvarint(append(make([]byte, 0, 256), formVersion, form), a.number)
}

// answer sends what an entity has answered. It does nothing if nobody waits.
func (s *site) answer(a asker, value any, err error) {
	if !a.waits() {
		return
	}
	if errors.Is(err, ErrHandOff) { // it was ended by force
		s.board.reply(a.node, append(answerHead(a, formRefused), byte(shardcore.HandedOff)), nil)
		return
	}
	s.board.reply(a.node, s.board.answers.Append(answerHead(a, formAnswer), value, err), func(err error) []byte {
		return s.board.answers.Append(answerHead(a, formAnswer), nil, fmt.Errorf("%w: the answer can't be sent: %w", eventsourcing.ErrNoReply, err))
	})
}

// refuse tells whoever waits for the answer that the command reached nobody.
func (s *site) refuse(body []byte, why shardcore.Reason) (asked bool) {
	a, err := decodeArrival(body)
	if err != nil || !a.asker.waits() {
		return false
	}
	s.board.reply(a.asker.node, append(answerHead(a.asker, formRefused), byte(why)), nil)
	return true
}

// reply is an answer as it has come.
type reply struct {
	number uint64
	why    shardcore.Reason // 0: it was answered
	data   []byte
}

// decodeReply reads an answer. The error matches errMalformed.
func decodeReply(b []byte) (reply, error) {
	r := wire.NewReader(b, formVersion, maxPayload+maxManifest, errMalformed)
	form := r.Byte("form")
	got := reply{number: r.Uint(1<<63, "number")}
	switch {
	case r.Err() != nil:
	case form == formAnswer:
		_, n := binary.Uvarint(b[2:])
		got.data = b[2+n:]
	case form == formRefused:
		got.why = shardcore.Reason(r.Byte("reason"))
	default:
		r.Fail("an answer of the form %d is not known", form)
	}
	return got, r.Err()
}
