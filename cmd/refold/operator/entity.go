// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// Linked is a type of entity whose Go code is part of the program: its events
// can be decoded and its entities refolded. Entity makes one.
type Linked struct {
	name   string
	err    error // why it can't be used
	events *codec.Registry
	isOne  func(event any) bool
	empty  func(id string) any
	fold   func(ctx context.Context, rt *eventsourcing.Runtime, id string, w wanted) (folded, error)
}

// wanted says which state is folded.
type wanted struct {
	upTo             uint64
	without          []uint64
	withoutSnapshots bool
}

// folded is a state that was folded, encoded.
type folded struct {
	seqNr, snapshotNr, records uint64
	time                       time.Time
	manifest                   string
	payload                    []byte
}

// Entity links a type of entity into the program.
func Entity[C, E any](typ eventsourcing.Type[C, E]) Linked {
	l := Linked{name: typ.Name, events: typ.Events}
	switch {
	case strings.TrimSpace(typ.Name) == "":
		l.err = errors.New("the type has no name")
	case typ.New == nil:
		l.err = errors.New("Type.New is missing")
	default:
		l.err = typ.Events.Err()
	}
	l.isOne = func(event any) bool { _, ok := event.(E); return ok }
	l.empty = func(id string) any { return typ.New(id) }
	l.fold = func(ctx context.Context, rt *eventsourcing.Runtime, id string, w wanted) (folded, error) {
		opts := eventsourcing.FoldOptions[E]{UpTo: w.upTo, WithoutSnapshots: w.withoutSnapshots}
		if len(w.without) > 0 {
			opts.Replace = func(seqNr uint64, event E) []E {
				if slices.Contains(w.without, seqNr) {
					return nil
				}
				return []E{event}
			}
		}
		f, err := eventsourcing.Fold(ctx, rt, typ, id, opts)
		if err != nil {
			return folded{}, err
		}
		out := folded{seqNr: f.SequenceNr, snapshotNr: f.SnapshotNr, records: f.Records, time: f.Time}
		out.manifest, out.payload, err = encodeState(f.State)
		return out, err
	}
	return l
}

// check returns an error if the type can't be used.
func (l *Linked) check() error {
	switch {
	case l.fold == nil:
		return errors.New("operator: the zero value of Linked is no type: use Entity")
	case l.err != nil:
		return fmt.Errorf("operator: type %q: %w", l.name, l.err)
	}
	return nil
}

// checkEvent decodes an event the way a recovery does.
func (l *Linked) checkEvent(scratch *[]any, manifest string, payload []byte) error {
	decoded, err := l.events.DecodeAppend((*scratch)[:0], manifest, payload)
	if err != nil {
		return err
	}
	for _, event := range decoded {
		if !l.isOne(event) {
			err = fmt.Errorf("%w: %T is no event of type %q", codec.ErrUnknown, event, l.name)
		}
	}
	clear(decoded)
	*scratch = decoded
	return err
}

// checkState decodes a snapshot the way a recovery does.
func (l *Linked) checkState(id, manifest string, payload []byte) error {
	_, entityID := journal.SplitID(id)
	return contained(func() error {
		state := l.empty(entityID)
		if err := attach(state, id); err != nil {
			return err
		}
		s, self := state.(eventsourcing.Snapshotter)
		switch {
		case manifest == eventsourcing.SelfManifest && self:
			return s.UnmarshalSnapshot(payload)
		case manifest == eventsourcing.StateManifest:
			c, err := codec.NewState(reflect.TypeOf(state))
			if err != nil {
				return err
			}
			return c.Decode(payload, state)
		}
		return fmt.Errorf("%w: snapshot manifest %q", codec.ErrUnknown, manifest)
	})
}

// attach tells the companions of a fresh state whose part they are.
func attach(state any, id string) error {
	v := reflect.ValueOf(state)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("Type.New returned a %T, it has to be a pointer to a struct", state)
	}
	v = v.Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		if c, ok := reflect.TypeAssert[eventsourcing.Companion](v.Field(i).Addr()); ok {
			if err := c.Attach(id, f.Name); err != nil {
				return fmt.Errorf("attach %s: %w", f.Name, err)
			}
		}
	}
	return nil
}

// encodeState encodes a state as a snapshot does.
func encodeState(state any) (manifest string, payload []byte, failed error) {
	failed = contained(func() (err error) {
		if s, ok := state.(eventsourcing.Snapshotter); ok {
			manifest = eventsourcing.SelfManifest
			payload, err = s.MarshalSnapshot()
			return err
		}
		c, err := codec.NewState(reflect.TypeOf(state))
		if err != nil {
			return fmt.Errorf("the state can't be encoded, so it can't be compared: %w", err)
		}
		manifest = eventsourcing.StateManifest
		payload, err = c.Encode(state)
		return err
	})
	return manifest, payload, failed
}

// contained makes an error of a panic in the user's code.
func contained(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the entity's code panicked: %v", p)
		}
	}()
	return f()
}
