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
	"github.com/refold-io/refold/internal/replication"
)

// The reasons of an Error. After ErrQuorum, ErrGivenUp, ErrStore and ErrStopped an update or a deletion may have taken
// place, and spreads if it has; after the others nothing has changed.
var (
	// ErrInvalid is matched by errors about configurations, keys, levels and values that can't be.
	ErrInvalid = errors.New("ddata: invalid")
	// ErrNotFound says that none of the nodes that were asked has the key.
	ErrNotFound = errors.New("ddata: not found")
	// ErrDeleted says that the key was deleted, which is for ever.
	ErrDeleted = errors.New("ddata: deleted")
	// ErrQuorum says that not enough nodes have taken part in time, or that too many have refused: then it matches ErrType as well, if
	// they hold another type, or ErrFull, if they have no room for another key.
	ErrQuorum = errors.New("ddata: not enough replicas")
	// ErrGivenUp says that the context was canceled while others were asked. The change is here, and spreads.
	ErrGivenUp = errors.New("ddata: given up while it was under way")
	// ErrTooFew says that there are not so many nodes. It matches ErrQuorum.
	ErrTooFew = fmt.Errorf("%w: the cluster has too few nodes", ErrQuorum)
	// ErrStore says that a durable key could not be written to disk, here or at too many others, or that the disk here has not answered in time.
	ErrStore = errors.New("ddata: the disk has failed")
	// ErrModify says that the function given to Update has failed or panicked, or that it has changed the value with the Self of
	// another node.
	ErrModify = errors.New("ddata: the update was not made")
	// ErrType says that the key holds a value of another type.
	ErrType = errors.New("ddata: another type")
	// ErrTooLarge says that the value would be too large for a message. The cause is a *TooLargeError.
	ErrTooLarge = errors.New("ddata: too large")
	// ErrFull says that there are as many keys as there may be.
	ErrFull = errors.New("ddata: too many keys")
	// ErrBusy says that too many requests are open.
	ErrBusy = errors.New("ddata: too many requests")
	// ErrCanceled says that the context, or Config.Timeout, ended before the request began. The cause says if that was because the function of
	// another update does not return.
	ErrCanceled = errors.New("ddata: canceled")
	// ErrStopped says that the replicator has ended.
	ErrStopped = errors.New("ddata: the replicator has ended")
)

type (
	// TooLargeError says how large a value would be.
	TooLargeError = replication.TooLargeError
	// PanicError says what a function given to Update has panicked with.
	PanicError = replication.PanicError
)

// Error is what has become of a request that has failed. It matches its Reason and its Cause.
type Error struct {
	// Op is what was to be done: "get", "update", "delete".
	Op  string
	Key string
	// Reason is one of the errors of this package.
	Reason error
	// Answered is how many replicas have taken part, this node included, Required how many had
	// to, of Total. All are 0 if none was asked, or it isn't known.
	Answered, Required, Total int
	// Silent are the nodes that were asked and have not answered when the time was up, sorted.
	Silent []identity.Node
	// Cause says more, for example context.DeadlineExceeded, or what a function has returned. It may be nil.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ddata: %s %q: %s", e.Op, e.Key, strings.TrimPrefix(e.Reason.Error(), "ddata: "))
	if e.Required > 0 && e.Reason != ErrNotFound && e.Reason != ErrDeleted { //nolint:errorlint // the sentinel itself
		fmt.Fprintf(&b, ": %d of %d, %d in all", e.Answered, e.Required, e.Total)
		b.WriteString(silentText(e.Silent))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// maxSilent is how many nodes an error names.
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

// reasonOf returns the reason for an error of the machine or of a data type.
func reasonOf(err error) error {
	switch {
	case is[*modifyError](err), is[*PanicError](err), errors.Is(err, replication.ErrForeign):
		return ErrModify
	case is[*TooLargeError](err):
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

// outcome returns the error for a reply, nil if it is done.
func (r *Replicator) outcome(op, key string, reply *replication.Reply) error {
	if reply.Outcome == replication.Done {
		return nil
	}
	e := &Error{Op: op, Key: key, Answered: reply.Answered, Required: reply.Required, Total: reply.Total, Silent: reply.Silent, Cause: publicError(reply.Err)}
	switch reply.Outcome {
	case replication.NotFound:
		e.Reason = ErrNotFound
	case replication.Deleted:
		e.Reason = ErrDeleted
	case replication.TimedOut:
		e.Reason = ErrQuorum
		switch {
		case errors.Is(e.Cause, replication.ErrType):
			e.Cause = &rewordedError{e.Cause.Error() + ", as they hold another type", []error{ErrType, e.Cause}}
		case errors.Is(e.Cause, replication.ErrFull):
			e.Cause = &rewordedError{e.Cause.Error(), []error{ErrFull, e.Cause}}
		}
		switch {
		case e.Cause == nil:
			e.Cause = context.DeadlineExceeded
		case len(e.Silent) > 0:
			e.Cause = fmt.Errorf("%w: %w", e.Cause, context.DeadlineExceeded)
		}
	case replication.TooFew:
		e.Reason = ErrTooFew
	case replication.StoreFailed:
		e.Reason = ErrStore
	case replication.Busy:
		e.Reason = ErrBusy
	case replication.Stopped:
		e.Reason, e.Cause = ErrStopped, r.cause()
	case replication.Failed:
		e.Reason = reasonOf(reply.Err)
		if m, ok := errors.AsType[*modifyError](reply.Err); ok {
			e.Cause = m.err
		}
	case replication.Done:
	}
	return e
}

// rewordedError is an error of what this package stands on, without the names of that.
type rewordedError struct {
	text string
	errs []error
}

func (e *rewordedError) Error() string   { return e.text }
func (e *rewordedError) Unwrap() []error { return e.errs }

// plain returns an error in the words of this package. What it matches stays.
func publicError(err error) error {
	if err == nil {
		return nil
	}
	text := publicText(err.Error())
	if text == err.Error() {
		return err
	}
	return &rewordedError{text, []error{err}}
}

// publicText returns a text of several lines in one, without those names.
func publicText(text string) string {
	text = strings.NewReplacer(
		": replication: invalid: ", ": ", ": replication: the key holds another type: ", ": ", ": replication: ", ": ", ": replica: ", ": ",
		": crdt: another type: ", ": ", ": crdt: ", ": ",
		"\nreplication: ", "; ", "\nreplica: ", "; ", "\n", "; ",
	).Replace(": " + text)
	return strings.TrimPrefix(text, ": ")
}
