// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"reflect"

	"github.com/refold-io/refold/eventsourcing"
)

// The methods of this file count; those of trace.go also make spans.

func (t *Telemetry) stashed(i eventsourcing.StashInfo) {
	k := key{entity: entityType(i.PersistenceID), command: reflect.TypeOf(i.Command), reason: "waiting"}
	if i.Aside {
		k.reason = "aside"
	}
	t.instruments.commandStashed.Add(context.Background(), 1, t.attributes.get(k).add...)
}

func (t *Telemetry) commit(i eventsourcing.CommitInfo) {
	ctx := context.Background()
	t.instruments.commitDuration.Record(ctx, i.Duration.Seconds())
	t.instruments.commitWrites.Record(ctx, int64(i.Writes))
	t.instruments.commitEvents.Record(ctx, int64(i.Events))
	t.instruments.commitSize.Record(ctx, int64(i.Bytes))
	if i.Failed > 0 {
		t.instruments.commitFailed.Add(ctx, int64(i.Failed))
	}
}

func (t *Telemetry) recoveryStarted(id string) {
	t.instruments.recoveryActive.Add(context.Background(), 1, t.entity(id).add...)
}

func (t *Telemetry) failure(id string, cause error) {
	k := key{entity: entityType(id), code: eventsourcing.Code(cause)}
	t.instruments.failures.Add(context.Background(), 1, t.attributes.get(k).add...)
}

func (t *Telemetry) fence(id string, _ uint64) {
	t.instruments.fences.Add(context.Background(), 1, t.entity(id).add...)
}

func (t *Telemetry) dropped(i eventsourcing.DroppedInfo) {
	k := key{entity: entityType(i.PersistenceID), code: eventsourcing.Code(i.Err)}
	t.instruments.dropped.Add(context.Background(), 1, t.attributes.get(k).add...)
}

func (t *Telemetry) stopped(id string) {
	t.instruments.stopped.Add(context.Background(), 1, t.entity(id).add...)
}

// entity returns the series that has nothing but the entity's type.
func (t *Telemetry) entity(id string) *series {
	return t.attributes.get(key{entity: entityType(id)})
}
