// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/eventsourcing"
)

const (
	entityTypeKey    = attribute.Key("refold.entity.type")
	commandTypeKey   = attribute.Key("refold.command.type")
	outcomeKey       = attribute.Key("refold.outcome")
	stashReasonKey   = attribute.Key("refold.stash.reason")
	errorTypeKey     = attribute.Key("error.type")
	persistenceIDKey = attribute.Key("refold.persistence_id")
	sequenceNrKey    = attribute.Key("refold.sequence_nr")
	eventsKey        = attribute.Key("refold.events")
	attemptKey       = attribute.Key("refold.delivery.attempt")
	snapshotNrKey    = attribute.Key("refold.snapshot_nr")
	snapshotSizeKey  = attribute.Key("refold.snapshot.size")
)

const (
	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// maxAttributes is the maximum number of combinations with distinct error codes.
const maxAttributes = 1000

// otherCode replaces the codes beyond maxAttributes.
const otherCode = "_OTHER"

// key is a combination of attributes. Attributes with an empty value are omitted.
type key struct {
	entity                string
	command               reflect.Type
	outcome, code, reason string
}

// result returns the key with the outcome of an operation.
func (k key) result(err error) key {
	k.code = eventsourcing.StatusOf(err).Code
	switch _, refused := errors.AsType[*eventsourcing.Refusal](err); {
	case err == nil:
		k.outcome = outcomeOK
	case refused:
		k.outcome = outcomeRefused
	default:
		k.outcome = outcomeFailed
	}
	return k
}

// series holds the prepared attributes of a combination.
type series struct {
	record []metric.RecordOption
	add    []metric.AddOption
	// The name of a command's span, and the options of the span: start for a command that is not a
	// delivery, deliver for a delivery.
	name           string
	start, deliver []trace.SpanStartOption
}

// attributes caches the combinations in use. Reading takes no lock and allocates nothing.
type attributes struct {
	mu    sync.Mutex // held while known is replaced
	known atomic.Pointer[map[key]*series]
}

func (a *attributes) get(k key) *series {
	if known := a.known.Load(); known != nil {
		if s := (*known)[k]; s != nil {
			return s
		}
	}
	return a.add(k)
}

func (a *attributes) add(k key) *series {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := make(map[key]*series)
	if old := a.known.Load(); old != nil {
		known = *old
	}
	if k.code != "" && len(known) >= maxAttributes {
		k.code = otherCode
	}
	if s := known[k]; s != nil {
		return s
	}
	known = maps.Clone(known)
	k.entity = strings.Clone(k.entity) // a substring would retain the whole persistence ID
	s := newSeries(k)
	known[k] = s
	a.known.Store(&known)
	return s
}

func newSeries(k key) *series {
	s := &series{}
	all := []attribute.KeyValue{entityTypeKey.String(k.entity)}
	if k.command != nil {
		s.name = strings.TrimLeft(k.command.String(), "*")
		all = append(all, commandTypeKey.String(s.name))
		s.start = []trace.SpanStartOption{trace.WithAttributes(all...)}
		s.deliver = []trace.SpanStartOption{s.start[0], trace.WithSpanKind(trace.SpanKindConsumer)}
	}
	for _, kv := range []attribute.KeyValue{outcomeKey.String(k.outcome), stashReasonKey.String(k.reason), errorTypeKey.String(k.code)} {
		if kv.Value.AsString() != "" {
			all = append(all, kv)
		}
	}
	set := metric.WithAttributeSet(attribute.NewSet(all...))
	s.record, s.add = []metric.RecordOption{set}, []metric.AddOption{set}
	return s
}

// entityType returns the part of a persistence ID before "|". It returns "" for an ID without such a
// part (see eventsourcing.Type.PersistenceID): each ID would otherwise be a series of its own.
func entityType(persistenceID string) string {
	name, _, found := strings.Cut(persistenceID, "|")
	if !found {
		return ""
	}
	return name
}
