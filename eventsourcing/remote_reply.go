// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/panics"
)

// replyCodec encodes replies for callers on other nodes. The zero value is ready to use. It is safe
// for concurrent use.
//
// A value is encoded without the name of its type, because the command declares the type. An error
// keeps its text, the code of a Refusal, and the errors of this package that it matches.
type replyCodec struct{ states sync.Map } // reflect.Type to *codec.State or error

// The first byte of an encoded reply.
const (
	replyNil     = 0
	replyValue   = 1
	replyError   = 2
	replyRefused = 3
)

// Limits of an encoded error.
const (
	maxErrorText  = 4 << 10
	maxErrorCodes = 32
)

// append appends the encoded form of a reply. A value that can't be encoded becomes an error that
// matches ErrNoReply, because the entity has already handled the command.
func (c *replyCodec) append(dst []byte, value any, err error) []byte {
	switch {
	case err != nil:
		return appendError(dst, err)
	case value == nil:
		return append(dst, replyNil)
	}
	data, err := c.encode(value)
	if err != nil {
		return appendError(dst, fmt.Errorf("%w: the reply can't be sent to another node: %w", ErrNoReply, err))
	}
	return append(append(dst, replyValue), data...)
}

func (c *replyCodec) encode(value any) ([]byte, error) {
	state, err := c.state(reflect.TypeOf(value))
	if err != nil {
		return nil, err
	}
	boxed := reflect.New(reflect.TypeOf(value))
	boxed.Elem().Set(reflect.ValueOf(value))
	return state.Encode(boxed.Interface())
}

// decode decodes a reply into the variable that into points to.
func (c *replyCodec) decode(data []byte, into any) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: the encoded reply is empty", ErrWrongReply)
	}
	switch data[0] {
	case replyNil:
		return nil
	case replyError, replyRefused:
		return decodeError(data)
	case replyValue:
	default:
		return fmt.Errorf("%w: the encoded reply has the unknown form %d", ErrWrongReply, data[0])
	}
	state, err := c.state(reflect.TypeOf(into).Elem())
	if err == nil {
		err = state.Decode(data[1:], into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrongReply, err)
	}
	return nil
}

// decodeFor decodes the reply to a command, whose type declares the type of the reply.
func (c *replyCodec) decodeFor(command any, data []byte) (any, error) {
	typed, ok := command.(interface{ replyType() reflect.Type })
	if !ok {
		return nil, fmt.Errorf("%w: %T does not declare its reply type", ErrWrongReply, command)
	}
	into := reflect.New(typed.replyType())
	if err := c.decode(data, into.Interface()); err != nil {
		return nil, err
	}
	return into.Elem().Interface(), nil
}

func (c *replyCodec) state(t reflect.Type) (*codec.State, error) {
	known, ok := c.states.Load(t)
	if !ok {
		state, err := codec.NewState(reflect.PointerTo(t))
		known = any(state)
		if err != nil {
			known = err
		}
		c.states.Store(t, known)
	}
	if err, failed := known.(error); failed {
		return nil, err
	}
	return known.(*codec.State), nil //nolint:errcheck,forcetypeassert // nothing else is stored
}

// appendError appends an error: the codes of the errors that it matches, its text, and the text of its
// refusal.
//
// A method of the error may panic. Then the text describes the panic, and the error has no codes.
func appendError(dst []byte, err error) []byte {
	var refusal *Refusal
	var all []string
	if panics.Call(func() { refusal, _ = errors.AsType[*Refusal](err); all = codes(err) }) != nil {
		refusal, all = nil, nil
	}
	form, refused := byte(replyError), ""
	if refusal != nil {
		form, refused = replyRefused, refusal.message
		if refusal.kind != Rejected {
			all = append([]string{kindCodes()[refusal.kind]}, all...)
		}
		all = append([]string{refusal.code}, all...)
	}
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, code := range all {
		dst = appendText(dst, code)
	}
	dst = appendText(dst, panics.Text(err))
	if form == replyRefused {
		dst = appendText(dst, refused)
	}
	return dst
}

func appendText(dst []byte, text string) []byte {
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

func decodeError(data []byte) error {
	r := textReader{data: data[1:]}
	n := r.uint(maxErrorCodes + 1)
	codes := make([]string, 0, n)
	for range n {
		codes = append(codes, r.text())
	}
	text, refused := r.text(), ""
	if data[0] == replyRefused {
		refused = r.text()
	}
	if r.bad || data[0] == replyRefused && len(codes) == 0 {
		return fmt.Errorf("%w: the encoded error is malformed", ErrWrongReply)
	}
	e := &remoteError{text: text}
	if data[0] == replyRefused {
		r := NewRefusal(codes[0], refused)
		if len(codes) > 1 {
			if k := slices.Index(kindCodes(), codes[1]); k > 0 {
				r.kind = Kind(k) //nolint:gosec // an index
				codes = slices.Delete(codes, 1, 2)
			}
		}
		if len(codes) == 1 && text == refused {
			return r
		}
		e.matches, codes = append(e.matches, r), codes[1:]
	}
	for _, code := range codes {
		if err := errorOf(code); err != nil {
			e.matches = append(e.matches, err)
		}
	}
	return e
}

// remoteError is an error of an entity on another node.
type remoteError struct {
	text    string
	matches []error
}

func (e *remoteError) Error() string { return e.text }

// Unwrap returns the errors that the original error matches.
func (e *remoteError) Unwrap() []error { return e.matches }

// textReader decodes numbers and texts. After an error, bad is true and all results are zero.
type textReader struct {
	data []byte
	bad  bool
}

func (r *textReader) uint(most int) int {
	v, n := binary.Uvarint(r.data)
	if n <= 0 || v > uint64(most) { //nolint:gosec // most is a small constant
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[n:]
	return int(v) //nolint:gosec // at most most
}

func (r *textReader) text() string {
	n := r.uint(maxErrorText)
	if n > len(r.data) {
		r.bad, r.data = true, nil
		return ""
	}
	text := string(r.data[:n])
	r.data = r.data[n:]
	return text
}
