// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
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
	decode func(id, manifest string, payload []byte) error // decodes a snapshot like a recovery
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
	l.isOne = func(event any) bool { _, ok := event.(E); return ok }
	l.decode = func(id, manifest string, payload []byte) error {
		_, err := eventsourcing.DecodeState(typ, id, manifest, payload)
		return err
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
		out := folded{seqNr: f.SequenceNr, snapshotNr: f.SnapshotNr, records: f.Records, time: f.Time}
		out.manifest, out.payload, err = eventsourcing.EncodeState(typ, f.State)
		return out, err
	}
	return l
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
