// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/outbox"
)

// stateVersion is the version of the two forms below. The first one, 0, is not written.
const stateVersion = 0

// outboxState is what an Outbox stores in snapshots.
type outboxState[M Message] struct {
	Version uint64                    `msgpack:"v,omitempty"`
	Last    uint64                    `msgpack:"l,omitempty"`
	Open    []outbox.Entry[parcel[M]] `msgpack:"o,omitempty"`
}

// inboxState is what an Inbox stores in snapshots.
type inboxState struct {
	Version uint64                                `msgpack:"v,omitempty"`
	Senders map[string]*outbox.Incoming[*verdict] `msgpack:"s,omitempty"`
}

// codecs keeps the codecs of states by their types. They are made of what the types say and of
// nothing else.
var codecs sync.Map //nolint:gochecknoglobals // see above

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

// marshal encodes a state as one msgpack value.
func marshal[S any](state *S) ([]byte, error) {
	c, err := stateCodec[S]()
	if err != nil {
		return nil, err
	}
	return c.Encode(state)
}

// unmarshal decodes the data that marshal returned.
func unmarshal[S any](data []byte, state *S) error {
	c, err := stateCodec[S]()
	if err != nil {
		return err
	}
	return c.Decode(data, state)
}

func checkVersion(v uint64) error {
	if v > stateVersion {
		return fmt.Errorf("version %d is newer than this program, which knows %d", v, stateVersion)
	}
	return nil
}

// MarshalMsgpack implements codec.Marshaler: it encodes the state.
func (o *Outbox[M]) MarshalMsgpack() ([]byte, error) {
	var s outboxState[M]
	if o.window != nil {
		s.Last, s.Open = o.window.State()
	}
	data, err := marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("delivery: encode an outbox: %w", err)
	}
	return data, nil
}

// UnmarshalMsgpack implements codec.Unmarshaler: it replaces the state. All deliveries are due, as
// if they had never been sent.
func (o *Outbox[M]) UnmarshalMsgpack(data []byte) error {
	var s outboxState[M]
	err := unmarshal(data, &s)
	if err == nil {
		err = checkVersion(s.Version)
	}
	if err == nil {
		o.window, err = outbox.Restore(o.options.withDefaults().window(), s.Last, s.Open)
	}
	if err != nil {
		return fmt.Errorf("delivery: decode an outbox: %w", err)
	}
	return nil
}

// Restore replaces the deliveries by those of another outbox, of which it makes copies; all are
// due, as if they had never been sent. It is for an aggregate that takes over a state which it has
// decoded by itself: see eventsourcing.StateAs. A plain assignment would lose whose part the outbox
// is, and its settings.
func (o *Outbox[M]) Restore(from *Outbox[M]) error {
	if from.window == nil {
		o.window = nil
		return nil
	}
	last, open := from.window.State()
	restored, err := outbox.Restore(o.options.withDefaults().window(), last, slices.Clone(open))
	if err != nil {
		return fmt.Errorf("delivery: restore an outbox: %w", err)
	}
	o.window, o.failures = restored, nil
	return nil
}

// MarshalMsgpack implements codec.Marshaler: it encodes the state.
func (b *Inbox) MarshalMsgpack() ([]byte, error) {
	data, err := marshal(&inboxState{Senders: b.senders})
	if err != nil {
		return nil, fmt.Errorf("delivery: encode an inbox: %w", err)
	}
	return data, nil
}

// UnmarshalMsgpack implements codec.Unmarshaler: it replaces the state.
func (b *Inbox) UnmarshalMsgpack(data []byte) error {
	var s inboxState
	err := unmarshal(data, &s)
	if err == nil {
		err = checkVersion(s.Version)
	}
	for sender, in := range s.Senders {
		if err == nil && (in == nil || sender == "") {
			err = fmt.Errorf("sender %q: nothing is stored", sender)
		}
		if err == nil {
			err = in.Check()
		}
	}
	if err != nil {
		return fmt.Errorf("delivery: decode an inbox: %w", err)
	}
	b.senders = s.Senders
	return nil
}
