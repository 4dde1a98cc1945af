// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/transport"
)

var (
	// ErrInvalid is matched by errors about invalid configurations and arguments.
	ErrInvalid = errors.New("cluster: invalid")
	// ErrNotMember is returned if a node is not a member of the cluster.
	ErrNotMember = errors.New("cluster: not a member")
	// ErrDisconnected is returned while this node is disconnected from the other nodes.
	ErrDisconnected = transport.ErrDisconnected

	// ErrLeft is the result of a node that has left the cluster.
	ErrLeft = errors.New("cluster: this node has left")
	// ErrStopped is the result of a node that was stopped without leaving the cluster.
	ErrStopped = errors.New("cluster: this node was stopped")
	// ErrShuttingDown is returned while this node shuts down.
	ErrShuttingDown = errors.New("cluster: this node is shutting down")
	// ErrDowned is the result of a node that the other members have downed.
	ErrDowned = errors.New("cluster: this node was downed")
	// ErrNameInUse is the result of a node whose name another live node uses. The text contains
	// that node.
	ErrNameInUse = errors.New("cluster: the name is in use")
	// ErrIncompatible is the result of a node whose settings differ from those of the cluster. The
	// text lists the settings.
	ErrIncompatible = errors.New("cluster: the settings differ from those of the cluster")
	// ErrNoCluster is the result of a node that could not join in time.
	ErrNoCluster = errors.New("cluster: no cluster was found in time")
	// ErrFailed is the result of a node that ended because of a bug.
	ErrFailed = errors.New("cluster: this node has failed")

	// ErrNotHosted is returned if the destination does not run the singleton, or if no instance was
	// found in time. The message was not handled.
	ErrNotHosted = errors.New("cluster: the destination runs no instance of the singleton")
	// ErrDropped is returned if a buffered message was dropped in favour of newer ones. The dropped
	// message was not handled.
	ErrDropped = errors.New("cluster: the message was dropped in favour of newer ones")
	// ErrProxyClosed is returned if the proxy was closed before the message was sent. The message
	// was not handled.
	ErrProxyClosed = errors.New("cluster: the proxy is closed")
	// ErrBusy is returned if too many messages wait for the singleton. The message was not handled.
	ErrBusy = errors.New("cluster: too many messages wait for the singleton")
	// ErrRefused is returned if the instance answered with an error, or ended without an answer.
	ErrRefused = errors.New("cluster: the singleton has refused the request")
)

func errorOf(l membership.Life) error {
	err := [...]error{
		membership.Asked: ErrStopped, membership.Left: ErrLeft, membership.WasDowned: ErrDowned, membership.NameTaken: ErrNameInUse,
		membership.Incompatible: ErrIncompatible, membership.Unsuccessful: ErrNoCluster,
	}[l.Reason]
	if l.Detail != "" {
		return fmt.Errorf("%w: %s", err, l.Detail)
	}
	return err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// wrapError adds the operation and the singleton to an error. It also adds the name of the package,
// unless the text contains it.
func wrapError(operation, singleton string, err error) error {
	if strings.Contains(err.Error(), "cluster: ") {
		return fmt.Errorf("%s %q: %w", operation, singleton, err)
	}
	return fmt.Errorf("cluster: %s %q: %w", operation, singleton, err)
}
