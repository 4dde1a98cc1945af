// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/outbox"
)

// outboxState is the form of an Outbox in snapshots.
type outboxState[M Message] struct {
	// Version is 0, which is not stored.
	Version uint64                      `msgpack:"v,omitempty"`
	Last    uint64                      `msgpack:"l,omitempty"`
	Open    []outbox.Entry[envelope[M]] `msgpack:"o,omitempty"`
}

func (s *outboxState[M]) version() uint64 { return s.Version }

// inboxState is the form of an Inbox in snapshots.
type inboxState struct {
	// Version is 0, which is not stored.
	Version uint64                                `msgpack:"v,omitempty"`
	Senders map[string]*outbox.Incoming[*verdict] `msgpack:"s,omitempty"`
}

func (s *inboxState) version() uint64 { return s.Version }

var codecs sync.Map //nolint:gochecknoglobals // a codec depends on nothing but its type

func stateCodec[S any]() (*codec.State, error) {
	t := reflect.TypeFor[*S]()
	if c, ok := codecs.Load(t); ok {
		return c.(*codec.State), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	c, err := codec.NewState(t)
	if err == nil {
		codecs.Store(t, c)
	}
	return c, err
}

func encode[S any](name string, state *S) ([]byte, error) {
	c, err := stateCodec[S]()
	var data []byte
	if err == nil {
		data, err = c.Encode(state)
	}
	if err != nil {
		return nil, fmt.Errorf("delivery: encode an %s: %w", name, err)
	}
	return data, nil
}

// decode decodes the result of encode and checks its version.
func decode[S any, P interface {
	*S
	version() uint64
}](data []byte, state P) error {
	c, err := stateCodec[S]()
	if err == nil {
		err = c.Decode(data, state)
	}
	if err == nil && state.version() > 0 {
		err = fmt.Errorf("version %d is newer than this program, which reads version 0", state.version())
	}
	return err
}

// MarshalMsgpack implements codec.Marshaler: it encodes the state.
func (o *Outbox[M]) MarshalMsgpack() ([]byte, error) {
	var s outboxState[M]
	if o.window != nil {
		s.Last, s.Open = o.window.State()
	}
	return encode("outbox", &s)
}

// UnmarshalMsgpack implements codec.Unmarshaler: it replaces the state. All deliveries are due, as if
// they had never been sent.
func (o *Outbox[M]) UnmarshalMsgpack(data []byte) error {
	var s outboxState[M]
	err := decode(data, &s)
	if err == nil {
		o.window, err = outbox.Restore(o.options.withDefaults().window(), s.Last, s.Open)
	}
	if err != nil {
		return fmt.Errorf("delivery: decode an outbox: %w", err)
	}
	return nil
}

// Restore replaces the deliveries by copies of those of another outbox. All are due, as if they had
// never been sent. The function from of eventsourcing.StateAs uses it, because an assignment would
// also replace the identity and the options of the outbox.
func (o *Outbox[M]) Restore(from *Outbox[M]) error {
	o.failures = nil
	if from.window == nil {
		o.window = nil
		return nil
	}
	last, open := from.window.State()
	restored, err := outbox.Restore(o.options.withDefaults().window(), last, slices.Clone(open))
	if err != nil {
		return fmt.Errorf("delivery: restore an outbox: %w", err)
	}
	o.window = restored
	return nil
}

// MarshalMsgpack implements codec.Marshaler: it encodes the state.
func (b *Inbox) MarshalMsgpack() ([]byte, error) {
	return encode("inbox", &inboxState{Senders: b.senders})
}

// UnmarshalMsgpack implements codec.Unmarshaler: it replaces the state.
func (b *Inbox) UnmarshalMsgpack(data []byte) error {
	var s inboxState
	errs := []error{decode(data, &s)}
	for sender, in := range s.Senders {
		if in == nil || sender == "" {
			errs = append(errs, fmt.Errorf("sender %q has no state", sender))
		} else {
			errs = append(errs, in.Check())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delivery: decode an inbox: %w", err)
	}
	b.senders = s.Senders
	return nil
}
