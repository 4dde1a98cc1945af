// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import "context"

// Tee returns an observer that tells several, in order. Each Begin gets the
// context that the one before it returned. There is one Inject and one Extract:
// those of the first observer that has either.
func Tee(observers ...Observer) Observer {
	var all Observer
	for _, o := range observers {
		all = all.and(o)
	}
	return all
}

func (o Observer) and(p Observer) Observer {
	inject, extract := o.Inject, o.Extract
	if inject == nil && extract == nil {
		inject, extract = p.Inject, p.Extract
	}
	return Observer{
		Begin:           bothBegin(o.Begin, p.Begin),
		Command:         both(o.Command, p.Command),
		Stashed:         both(o.Stashed, p.Stashed),
		Commit:          both(o.Commit, p.Commit),
		RecoveryStarted: both(o.RecoveryStarted, p.RecoveryStarted),
		Recovery:        both(o.Recovery, p.Recovery),
		Snapshot:        both(o.Snapshot, p.Snapshot),
		Failure:         bothOf(o.Failure, p.Failure),
		Fence:           bothOf(o.Fence, p.Fence),
		Dropped:         both(o.Dropped, p.Dropped),
		Unreturned:      both(o.Unreturned, p.Unreturned),
		Stopped:         both(o.Stopped, p.Stopped),
		Durable:         bothOf(o.Durable, p.Durable),
		Inject:          inject,
		Extract:         extract,
	}
}

func bothBegin(f, g func(CommandInfo) context.Context) func(CommandInfo) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(i CommandInfo) context.Context {
		i.Context = f(i)
		return g(i)
	}
}

func both[T any](f, g func(T)) func(T) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T) {
		f(v)
		g(v)
	}
}

func bothOf[T, U any](f, g func(T, U)) func(T, U) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T, w U) {
		f(v, w)
		g(v, w)
	}
}
