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
	// ErrInvalid is matched by errors about configurations and arguments that can't be.
	ErrInvalid = errors.New("cluster: invalid")
	// ErrNotMember says that a node is no member of the cluster.
	ErrNotMember = errors.New("cluster: no member")
	// ErrDisconnected says that this node is cut off from the others.
	ErrDisconnected = transport.ErrDisconnected

	// ErrLeft says that this node has left the cluster.
	ErrLeft = errors.New("cluster: this node has left")
	// ErrStopped says that this node was stopped without leaving the cluster.
	ErrStopped = errors.New("cluster: this node was stopped")
	// ErrShuttingDown says that this node shuts down, but has not ended yet.
	ErrShuttingDown = errors.New("cluster: this node shuts down")
	// ErrDowned says that the others have given this node up.
	ErrDowned = errors.New("cluster: this node was downed")
	// ErrNameInUse says that another node with the same name is alive, and which.
	ErrNameInUse = errors.New("cluster: the name is in use")
	// ErrIncompatible says that the settings of this node differ from those of the cluster, and which.
	ErrIncompatible = errors.New("cluster: the settings differ from those of the cluster")
	// ErrNoCluster says that no cluster was found in time.
	ErrNoCluster = errors.New("cluster: no cluster was found in time")
	// ErrFailed says that this node ended because of a fault in the program.
	ErrFailed = errors.New("cluster: this node has failed")

	// ErrNotHosted says that no instance of the singleton was where the message went, or that none was known while there was time. It
	// was not handled.
	ErrNotHosted = errors.New("cluster: no instance of the singleton is there")
	// ErrDropped says that a message for a singleton had to make room for newer ones. It was
	// not handled.
	ErrDropped = errors.New("cluster: the message made room for newer ones")
	// ErrProxyClosed says that a proxy was closed before the message was sent. It was not handled.
	ErrProxyClosed = errors.New("cluster: the proxy is closed")
	// ErrBusy says that too many messages wait for a singleton. This one was not handled.
	ErrBusy = errors.New("cluster: too many messages wait for the singleton")
	// ErrRefused says that the instance of a singleton has ended without an answer, or answered
	// with an error.
	ErrRefused = errors.New("cluster: the singleton has given no answer")
)

// errorOf returns the error for why a membership ended.
func errorOf(l membership.Life) error {
	err := sentinelOf(l.Reason)
	if l.Detail != "" {
		return fmt.Errorf("%w: %s", err, l.Detail)
	}
	return err
}

func sentinelOf(r membership.Reason) error {
	switch r {
	case membership.Left:
		return ErrLeft
	case membership.WasDowned:
		return ErrDowned
	case membership.NameTaken:
		return ErrNameInUse
	case membership.Incompatible:
		return ErrIncompatible
	case membership.Unsuccessful:
		return ErrNoCluster
	case membership.Asked:
	}
	return ErrStopped
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// doing adds what was being done with a singleton when there was an error. Those of this package say by themselves that they are.
func doing(what, singleton string, err error) error {
	if strings.Contains(err.Error(), "cluster: ") {
		return fmt.Errorf("%s %q: %w", what, singleton, err)
	}
	return fmt.Errorf("cluster: %s %q: %w", what, singleton, err)
}
