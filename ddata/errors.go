// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
)

// The reasons of an Error. After ErrQuorum, ErrGivenUp, ErrStore and ErrStopped, an update or a
// deletion may have changed this node; such a change spreads to the other nodes. After the other
// errors nothing has changed.
var (
	// ErrInvalid matches errors about invalid configurations, keys, levels and values.
	ErrInvalid = errors.New("ddata: invalid")
	// ErrNotFound is returned if no node that was read has the key.
	ErrNotFound = errors.New("ddata: not found")
	// ErrDeleted is returned if the key was deleted, which is permanent.
	ErrDeleted = errors.New("ddata: deleted")
	// ErrQuorum is returned if too few nodes have answered in time, or too many have refused. If
	// nodes have refused, the error also matches ErrType if they hold another type, or ErrFull if
	// they have no room for another key.
	ErrQuorum = errors.New("ddata: not enough replicas")
	// ErrGivenUp is returned if the context was canceled while the request waited for other nodes.
	// The change is made on this node and spreads.
	ErrGivenUp = errors.New("ddata: canceled while waiting for replicas")
	// ErrTooFew is returned if the cluster has fewer nodes than the level requires. It matches
	// ErrQuorum.
	ErrTooFew = fmt.Errorf("%w: the cluster has too few nodes", ErrQuorum)
	// ErrStore is returned if a durable key could not be written to disk, on this node or on too
	// many other nodes. It is also returned if the disk of this node has not answered in time.
	ErrStore = errors.New("ddata: write to disk failed")
	// ErrModify is returned if the function given to Update has failed, has panicked, or has
	// changed the value with the Self of another node. After a panic the cause is a *PanicError.
	ErrModify = errors.New("ddata: update function failed")
	// ErrType is returned if the key holds a value of another type.
	ErrType = errors.New("ddata: type mismatch")
	// ErrTooLarge is returned if the value would be too large for a message. The cause is a
	// *TooLargeError.
	ErrTooLarge = errors.New("ddata: value too large")
	// ErrFull is returned if the number of keys has reached Config.MaxKeys.
	ErrFull = errors.New("ddata: too many keys")
	// ErrBusy is returned if too many requests are open.
	ErrBusy = errors.New("ddata: too many requests")
	// ErrCanceled is returned if the context ended, or Config.Timeout elapsed, before the request
	// began. If the request waited for the function of another update, the cause contains the key
	// of that update.
	ErrCanceled = errors.New("ddata: canceled")
	// ErrStopped is returned if the replicator has ended.
	ErrStopped = errors.New("ddata: replicator stopped")
)

// TooLargeError reports the size of a value that exceeds the limit.
type TooLargeError struct {
	Key string
	// Size is the size of the encoded value, Max the limit, in bytes.
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("value of %q would have %d bytes, limit %d", e.Key, e.Size, e.Max)
}

// PanicError reports a panic of a function given to Update.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Error is the error of a request. It matches its Reason and its Cause.
type Error struct {
	// Op is "get", "update" or "delete".
	Op  string
	Key string
	// Reason is one of the errors of this package.
	Reason error
	// Answered is the number of replicas that have taken part, including this node. Required is the
	// number that the level requires, Total the number of all replicas. All are 0 if no request was
	// sent to other nodes, or if the numbers are unknown.
	Answered, Required, Total int
	// Silent are the nodes to which the request was sent and that have not answered in time,
	// sorted.
	Silent []identity.Node
	// Cause is the underlying error, for example context.DeadlineExceeded or the error of a
	// function given to Update. It may be nil.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ddata: %s %q: %s", e.Op, e.Key, strings.TrimPrefix(e.Reason.Error(), "ddata: "))
	if e.Required > 0 && e.Reason != ErrNotFound && e.Reason != ErrDeleted { //nolint:errorlint // the sentinel itself
		fmt.Fprintf(&b, ": %d of %d required, %d in total", e.Answered, e.Required, e.Total)
		b.WriteString(silentText(e.Silent))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// maxSilent is the number of nodes that an error text names.
const maxSilent = 5

func silentText(nodes []identity.Node) string {
	if len(nodes) == 0 {
		return ""
	}
	names := make([]string, 0, maxSilent+1)
	for _, n := range nodes[:min(len(nodes), maxSilent)] {
		names = append(names, n.Name)
	}
	if more := len(nodes) - maxSilent; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return ", no answer from " + strings.Join(names, ", ")
}

// Unwrap returns the reason and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

func reasonOf(err error) error {
	switch {
	case is[*modifyError](err), isPanic(err), errors.Is(err, replication.ErrForeign):
		return ErrModify
	case is[*replication.TooLargeError](err):
		return ErrTooLarge
	case errors.Is(err, replication.ErrType), errors.Is(err, crdt.ErrType):
		return ErrType
	case errors.Is(err, replication.ErrFull):
		return ErrFull
	}
	return ErrInvalid
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isPanic reports whether err is the panic of a function given to Update. It returns false for the
// panic of a user's data type, which is wrapped in another error.
func isPanic(err error) bool {
	_, ok := err.(*panics.Error) //nolint:errorlint // not if it is wrapped
	return ok
}

// outcome returns the error for a reply, nil if the request is done.
func (r *Replicator) outcome(op, key string, reply *replication.Reply) error {
	if reply.Outcome == replication.Done {
		return nil
	}
	e := &Error{Op: op, Key: key, Answered: reply.Answered, Required: reply.Required, Total: reply.Total, Silent: reply.Silent, Cause: publicError(reply.Err)}
	e.Reason = map[replication.Outcome]error{
		replication.NotFound: ErrNotFound, replication.Deleted: ErrDeleted, replication.TimedOut: ErrQuorum, replication.TooFew: ErrTooFew,
		replication.StoreFailed: ErrStore, replication.Busy: ErrBusy, replication.Stopped: ErrStopped,
	}[reply.Outcome]
	switch reply.Outcome {
	case replication.TimedOut:
		if errors.Is(e.Cause, replication.ErrType) {
			e.Cause = replication.Errorf(ErrType, "%w: the replicas hold another type", e.Cause)
		} else if errors.Is(e.Cause, replication.ErrFull) {
			e.Cause = replication.Errorf(ErrFull, "%w", e.Cause)
		}
		if e.Cause == nil {
			e.Cause = context.DeadlineExceeded
		} else if len(e.Silent) > 0 {
			e.Cause = fmt.Errorf("%w: %w", e.Cause, context.DeadlineExceeded)
		}
	case replication.Stopped:
		e.Cause = r.cause()
	case replication.Failed:
		e.Reason = reasonOf(reply.Err)
		if m, ok := errors.AsType[*modifyError](reply.Err); ok {
			e.Cause = m.err
		}
	default:
	}
	return e
}

// publicError converts an error of an internal package to its exported type in this package.
func publicError(err error) error {
	switch e := err.(type) { //nolint:errorlint // the machine does not wrap these
	case *replication.TooLargeError:
		return &TooLargeError{Key: e.Key, Size: e.Size, Max: e.Max}
	case *panics.Error:
		return &PanicError{e.Value}
	}
	return err
}
