// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// Linked is an entity type whose Go code is part of the program, so that its events can be decoded
// and replayed. Entity returns one.
type Linked struct {
	name   string
	err    error // reason why the type is unusable
	events *codec.Registry
	isOne  func(event any) bool
	// entityID returns the ID of the entity with a persistence ID, and false for another type.
	entityID func(persistenceID string) (string, bool)
	decode   func(id, manifest string, payload []byte) (folded, error) // decodes a snapshot like a recovery
	// replay replays the events of an entity once and calls visit with the state at each of some
	// sequence numbers, in ascending order. It ends when visit fails.
	replay func(ctx context.Context, rt *eventsourcing.Runtime, id string, at []uint64, visit func(folded) error) error
	fold   func(ctx context.Context, rt *eventsourcing.Runtime, id string, w wanted) (folded, error)
}

type wanted struct {
	upTo             uint64
	without          []uint64
	withoutSnapshots bool
}

// folded is a replayed state, encoded.
type folded struct {
	seqNr, snapshotNr, records uint64
	time                       time.Time
	manifest                   string
	payload                    []byte
}

// Entity adds an entity type to the program.
func Entity[S, E any](typ eventsourcing.Type[S, E]) Linked {
	l := Linked{name: typ.Name, events: typ.Events}
	switch {
	case strings.TrimSpace(typ.Name) == "":
		l.err = errors.New("the type has no name")
	case typ.Apply == nil && typ.ApplyRecorded == nil:
		l.err = errors.New("Type.Apply is missing")
	default:
		l.err = typ.Events.Err()
	}
	l.entityID = typ.EntityIDOf
	l.isOne = func(event any) bool { _, ok := event.(E); return ok }
	encode := func(seqNr uint64, state *S) (f folded, err error) {
		f.seqNr = seqNr
		f.manifest, f.payload, err = eventsourcing.EncodeState(typ, state)
		return f, err
	}
	l.decode = func(id, manifest string, payload []byte) (folded, error) {
		state, err := eventsourcing.DecodeState(typ, id, manifest, payload)
		if err != nil {
			return folded{}, err
		}
		return encode(0, state)
	}
	l.replay = func(ctx context.Context, rt *eventsourcing.Runtime, id string, at []uint64, visit func(folded) error) (err error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		last, ended := at[len(at)-1], error(nil)
		// until visits the state before the next event. A repeated replay visits no state again.
		until := func(next uint64, state *S) {
			for ; ended == nil && len(at) > 0 && at[0] < next; at = at[1:] {
				var f folded
				if f, ended = encode(at[0], state); ended == nil {
					ended = visit(f)
				}
				if ended != nil {
					cancel(ended)
				}
			}
		}
		watched := typ
		watched.Apply = nil
		watched.ApplyRecorded = func(state *S, event E, r eventsourcing.Recorded) {
			until(r.SequenceNr, state)
			if typ.Apply != nil {
				typ.Apply(state, event)
			} else {
				typ.ApplyRecorded(state, event, r)
			}
		}
		f, err := eventsourcing.Fold(ctx, rt, watched, id, eventsourcing.FoldOptions[E]{UpTo: last})
		if err == nil {
			until(last+1, f.State)
		}
		return cmp.Or(ended, err)
	}
	l.fold = func(ctx context.Context, rt *eventsourcing.Runtime, id string, w wanted) (folded, error) {
		opts := eventsourcing.FoldOptions[E]{UpTo: w.upTo, DisableSnapshots: w.withoutSnapshots}
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
		out, err := encode(f.SequenceNr, f.State)
		out.snapshotNr, out.records, out.time = f.SnapshotNr, f.Records, f.Time
		return out, err
	}
	return l
}

// linkedOf returns the type of the entity with a persistence ID, nil if it is not among these.
func linkedOf(entities []Linked, persistenceID string) *Linked {
	for i := range entities {
		l := &entities[i]
		if l.entityID == nil {
			continue // a zero value, see check
		}
		if _, ok := l.entityID(persistenceID); ok {
			return l
		}
	}
	return nil
}

func (l *Linked) check() error {
	switch {
	case l.fold == nil:
		return errors.New("operator: the zero value of Linked is unusable: call Entity")
	case l.err != nil:
		return fmt.Errorf("operator: type %q: %w", l.name, l.err)
	}
	return nil
}

// checkEvent decodes an event like a recovery.
func (l *Linked) checkEvent(scratch *[]any, manifest string, payload []byte) error {
	decoded, err := l.events.DecodeAppend((*scratch)[:0], manifest, payload)
	if err != nil {
		return err
	}
	for _, event := range decoded {
		if !l.isOne(event) {
			err = fmt.Errorf("%w: %T is not an event of type %q", codec.ErrUnknown, event, l.name)
		}
	}
	clear(decoded)
	*scratch = decoded
	return err
}
